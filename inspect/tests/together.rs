//! The tests of this crate in one program, which is linked once and keeps all cores at work: a file here is a module.

mod compressed_files;
mod damaged_scan;
mod ext_images;
mod ext_scores;
mod kernel_extents;
mod read_prices;
mod scan_judges;
