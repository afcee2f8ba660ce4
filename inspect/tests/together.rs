//! All tests of this crate in one program, which links once and keeps all cores busy; each file is a module.

mod compressed_files;
mod damaged_scan;
mod ext_images;
mod ext_scores;
mod kernel_extents;
mod read_prices;
mod scan_judges;
