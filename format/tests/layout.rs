//! The layout document matches the code: the offset and size of every field are taken from the structures.
//! `JOULEFS_RENEW=1 cargo test -p joulefs-format --test together layout::` regenerates it.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;

use format::checkpoint::{self, CpFlags, RawCheckpoint};
use format::dentry::{self, Layout};
use format::inode::{self, Advise, Inline, InodeFlags, RawExtra, RawInode};
use format::nat::{self, RawNatEntry};
use format::node::{self, RawNodeFooter};
use format::orphan::{self, RawOrphanBlock};
use format::sit::{self, LogType, RawSitEntry};
use format::summary::{self, RawSummary};
use format::superblock::{self, Features, RawDevice, RawSuperBlock};
use format::{crc, xattr};

/// One field: offset, bytes, name on disk, meaning.
type Field = (usize, usize, &'static str, &'static str);

struct Structure {
    title: &'static str,
    name: &'static str,
    size: usize,
    fields: Vec<Field>,
}

fn bytes_of<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// A structure's fields with their offsets. A missing field does not compile.
macro_rules! structure {
    ($title:literal, $raw:ident { $($field:ident: $meaning:literal),* $(,)? }) => {{
        let _every_field_is_named = |raw: &$raw| {
            let $raw { $($field: _),* } = raw;
        };
        Structure {
            title: $title,
            name: stringify!($raw),
            size: size_of::<$raw>(),
            fields: vec![$((
                offset_of!($raw, $field),
                bytes_of::<$raw, _>(|raw| &raw.$field),
                stringify!($field),
                $meaning,
            )),*],
        }
    }};
}

fn structures() -> Vec<Structure> {
    vec![
        structure!(
            "Superblock, at byte 1024 of blocks 0 and 1",
            RawSuperBlock {
                magic: "0xF2F52010; 0x4A4FF2F5 on a volume whose inodes may hold deltas (not Linux; such a volume has no feature bit for it)",
                major_ver: "1",
                minor_ver: "features came with their own bits; the number says little",
                log_sectorsize: "9 to 12",
                log_sectors_per_block: "12 - log_sectorsize",
                log_blocksize: "12",
                log_blocks_per_seg: "9",
                segs_per_sec: "segments in a section, the unit of cleaning",
                secs_per_zone: "sections in a zone",
                checksum_offset: "3068 where the volume has checksums, else 0",
                block_count: "blocks of the volume",
                section_count: "segment_count_main / segs_per_sec",
                segment_count: "segments from segment 0 to the end",
                segment_count_ckpt: "2",
                segment_count_sit: "both copies together",
                segment_count_nat: "both copies together",
                segment_count_ssa: "0 in a read-only image",
                segment_count_main: "segments of the main area",
                segment0_blkaddr: "block address, as all that follow; equal to cp_blkaddr",
                cp_blkaddr: "first checkpoint pack; the second is 512 blocks on",
                sit_blkaddr: "segment information table",
                nat_blkaddr: "node address table",
                ssa_blkaddr: "segment summaries",
                main_blkaddr: "main area",
                root_ino: "3",
                node_ino: "1",
                meta_ino: "2",
                uuid: "seed of inode checksums",
                volume_name: "UTF-16",
                extension_count: "cold extensions in the list",
                extension_list: "64 of 8 bytes: cold, then hot",
                cp_payload: "blocks after a pack's head that hold the SIT bitmap",
                version: "text: who wrote it last",
                init_version: "text: who made it",
                feature: "see Features",
                encryption_level: "0",
                encrypt_pw_salt: "",
                devs: "8 devices",
                qf_ino: "quota inodes: user, group, project",
                hot_ext_count: "hot extensions in the list",
                s_encoding: "1: UTF-8 12.1",
                s_encoding_flags: "1: strict",
                s_stop_reason: "counters of why Linux stopped writing checkpoints",
                s_errors: "bits of inconsistencies Linux met",
                reserved: "",
                crc: "over the bytes before it",
            }
        ),
        structure!(
            "One of eight devices",
            RawDevice { path: "text, zero padded; empty: no such device", total_segments: "" }
        ),
        structure!(
            "Checkpoint, at a pack's first and last block; bitmaps follow",
            RawCheckpoint {
                checkpoint_ver: "the newer of two valid packs counts; if equal, the first",
                user_block_count: "blocks users may fill",
                valid_block_count: "data, nodes and reserved blocks",
                rsvd_segment_count: "kept back for cleaning",
                overprov_segment_count: "users never get them",
                free_segment_count: "without a valid block and no log's",
                cur_node_segno: "hot, warm, cold; unused 0xFFFFFFFF",
                cur_node_blkoff: "next block of each",
                cur_data_segno: "hot, warm, cold; unused 0xFFFFFFFF",
                cur_data_blkoff: "next block of each",
                ckpt_flags: "see Checkpoint flags",
                cp_pack_total_block_count: "3 to 512, head and tail included",
                cp_pack_start_sum: "first data summary, from the pack's start",
                valid_node_count: "",
                valid_inode_count: "",
                next_free_nid: "a hint",
                sit_ver_bitmap_bytesize: "one bit for each SIT block",
                nat_ver_bitmap_bytesize: "one bit for each NAT block",
                checksum_offset: "4092, or 192 with a large NAT bitmap",
                elapsed_time: "seconds mounted",
                alloc_type: "data hot, warm, cold, node hot, warm, cold: 0 log, 1 fills holes",
            }
        ),
        structure!(
            "SIT entry",
            RawSitEntry {
                vblocks: "type << 10 | valid blocks",
                valid_map: "one bit a block, most significant first",
                mtime: "seconds of mounted time",
            }
        ),
        structure!(
            "NAT entry",
            RawNatEntry { version: "grows when the node is freed", ino: "whose node", block_addr: "where; 0 free" }
        ),
        structure!(
            "Summary entry",
            RawSummary {
                nid: "data: the node that holds the address; node: itself",
                version: "data: that node's NAT version; node: 0",
                ofs_in_node: "data: the slot, extra attributes not counted; node: 0",
            }
        ),
        structure!(
            "Node footer, the last 24 bytes of every node",
            RawNodeFooter {
                nid: "its own number",
                ino: "whose node",
                flag: "bit 0 cold (no directory), 1 fsync, 2 dentry, 3.. offset in the node tree",
                cp_ver: "checkpoint version, and its checksum in the upper half",
                next_blkaddr: "next free block of the log",
            }
        ),
        structure!(
            "Inode",
            RawInode {
                i_mode: "type and permissions",
                i_advise: "see Advice",
                i_inline: "see Inline flags",
                i_uid: "",
                i_gid: "",
                i_links: "a directory: 2 + its subdirectories",
                i_size: "bytes",
                i_blocks: "4 KiB blocks: data, nodes, the inode itself, reserved",
                i_atime: "seconds",
                i_ctime: "",
                i_mtime: "",
                i_atime_nsec: "",
                i_ctime_nsec: "",
                i_mtime_nsec: "",
                i_generation: "in the checksum's seed",
                i_current_depth: "directory: hash levels; file: failed cleanings of a pinned file",
                i_xattr_nid: "node of extended attributes, or 0",
                i_flags: "see Inode flags",
                i_pino: "parent, for roll-forward",
                i_namelen: "",
                i_name: "name in the parent, for roll-forward",
                i_dir_level: "levels a directory starts above",
                i_ext: "largest extent: file block, address, length; or length 0; or the mark of a zone of deltas: 0, 0xFFFF0000 + words, 0 (not Linux)",
                i_addr: "923 words: extra attributes, addresses or inline contents, a zone of deltas (not Linux), inline xattrs",
                i_nid: "direct, direct, indirect, indirect, double indirect",
                footer: "",
            }
        ),
        structure!(
            "Extra attributes, over the first words of i_addr",
            RawExtra {
                i_extra_isize: "bytes of them that are there: 4 to 36, a multiple of 4",
                i_inline_xattr_size: "words of inline xattrs, if flexible",
                i_projid: "",
                i_inode_checksum: "over the whole block but itself",
                i_crtime: "birth, seconds",
                i_crtime_nsec: "",
                i_compr_blocks: "blocks that compression saved",
                i_compress_algorithm: "0 LZO, 1 LZ4, 2 zstd, 3 LZO-RLE",
                i_log_cluster_size: "blocks of a cluster, as a power of 2",
                i_compress_flag: "bit 0: a checksum in each cluster; 8.. level",
            }
        ),
        structure!(
            "Orphan block",
            RawOrphanBlock {
                ino: "inodes without a name that are still open",
                reserved: "",
                blk_addr: "number of this block among the orphan blocks, from 1",
                blk_count: "orphan blocks of the pack",
                entry_count: "inodes in this block",
                check_sum: "0, never verified",
            }
        ),
    ]
}

fn flags<F: bitflags::Flags>(out: &mut String, title: &str, show: fn(F::Bits) -> u64) {
    writeln!(out, "\n## {title}\n\n| bit | name |\n|---|---|").unwrap();
    for flag in F::FLAGS.iter().filter(|f| !f.name().is_empty()) {
        writeln!(out, "| {:#x} | {} |", show(flag.value().bits()), flag.name()).unwrap();
    }
}

fn areas(out: &mut String) {
    let mut table = |title: &str, rows: &[(usize, usize, String)]| {
        writeln!(out, "\n## {title}\n\n| offset | bytes | what |\n|---|---|---|").unwrap();
        for (at, len, what) in rows {
            writeln!(out, "| {at} | {len} | {what} |").unwrap();
        }
    };
    let l = Layout::BLOCK;
    table(
        "Directory block",
        &[
            (0, l.bitmap_len(), "slots in use, least significant bit first".into()),
            (l.bitmap_len(), l.entries_at() - l.bitmap_len(), "0".into()),
            (
                l.entries_at(),
                l.names_at() - l.entries_at(),
                format!("{} entries of 11: hash u32, inode u32, name length u16, type u8", l.slots),
            ),
            (l.names_at(), l.len() - l.names_at(), format!("{} name slots of {}", l.slots, dentry::SLOT_LEN)),
        ],
    );
    let l = Layout::inline(3488);
    table(
        "Inline directory of 3488 bytes (no extra attributes, 50 words of inline xattrs)",
        &[
            (0, l.bitmap_len(), "slots in use".into()),
            (l.bitmap_len(), l.entries_at() - l.bitmap_len(), "0".into()),
            (l.entries_at(), l.names_at() - l.entries_at(), format!("{} entries of 11", l.slots)),
            (l.names_at(), l.len() - l.names_at(), format!("{} name slots of {}", l.slots, dentry::SLOT_LEN)),
        ],
    );
    let entries = summary::SUMMARY_ENTRIES * 7;
    table(
        "Summary block",
        &[
            (0, entries, format!("{} entries of 7", summary::SUMMARY_ENTRIES)),
            (
                entries,
                summary::JOURNAL_BYTES,
                format!(
                    "journal: u16 count, then {} NAT entries of 4 + 9 (hot data) or {} SIT entries of 4 + 74 \
                 (cold data); in hot node's u64 kilobytes written at 2",
                    summary::NAT_JOURNAL,
                    summary::SIT_JOURNAL
                ),
            ),
            (entries + summary::JOURNAL_BYTES, 1, "1 nodes, 0 data".into()),
            (entries + summary::JOURNAL_BYTES + 1, 4, "checksum: 0, never verified".into()),
        ],
    );
    table(
        "First block of compact summaries",
        &[
            (0, summary::JOURNAL_BYTES, "NAT journal".into()),
            (summary::JOURNAL_BYTES, summary::JOURNAL_BYTES, "SIT journal".into()),
            (
                2 * summary::JOURNAL_BYTES,
                439 * 7,
                "439 entries; the blocks after have 584, none reaches the last 5 bytes".into(),
            ),
        ],
    );
    assert_eq!((summary::compact_blocks(439), summary::compact_blocks(440)), (1, 2));
    table(
        "Extended attributes: inline bytes followed by the xattr node's",
        &[
            (0, 4, format!("{:#x}", xattr::MAGIC)),
            (4, 4, "1".into()),
            (8, xattr::HEADER - 8, "0".into()),
            (
                xattr::HEADER,
                0,
                "entries: index u8, name length u8, value length u16, name, value, padded to 4; a zero word \
             ends them"
                    .into(),
            ),
        ],
    );
    writeln!(
        out,
        "\n## nat_bits\n\nIn the last blocks of the pack's segment: u64 checkpoint checksum << 32 | version; two bitmaps\n\
         with a bit for each NAT block, least significant first: no entry is free; every entry is free."
    )
    .unwrap();
}

fn render() -> String {
    let mut out = String::from(
        "# Where every field of F2FS lies\n\n\
         `format/tests/layout.rs` generates this file from the structures in `format/src` and fails if they\n\
         differ. All numbers are little-endian; nothing is aligned. Blocks have 4096 bytes.\n",
    );
    writeln!(out, "\n## Counts\n\n| what | how many |\n|---|---|").unwrap();
    for (what, n) in [
        ("blocks in a segment", format::BLOCKS_PER_SEG as usize),
        ("SIT entries in a block", sit::SIT_ENTRIES as usize),
        ("NAT entries in a block", nat::NAT_ENTRIES as usize),
        ("addresses in an inode", inode::ADDRS_PER_INODE as usize),
        ("addresses in a direct node", node::ADDRS_PER_BLOCK as usize),
        ("nodes in an indirect node", node::NIDS_PER_BLOCK as usize),
        ("words of inline xattrs, unless flexible", inode::DEFAULT_INLINE_XATTR as usize),
        ("xattr bytes in an xattr node", xattr::NODE_BYTES),
        ("inodes in an orphan block", orphan::ORPHANS_PER_BLOCK),
        ("offset of the version bitmaps in a checkpoint", checkpoint::BITMAPS),
        ("offset of the superblock in its block", superblock::OFFSET),
        ("extensions in the superblock's list", superblock::MAX_EXTENSIONS),
        ("hash levels of a directory", dentry::MAX_DEPTH as usize),
    ] {
        writeln!(out, "| {what} | {n} |").unwrap();
    }
    writeln!(
        out,
        "\nThe checksum is CRC-32 (reflected, 0xEDB88320) without inversions; the superblock's and the\n\
         checkpoint's start with {:#x}. The node offset of extended attributes is {:#x}.",
        crc::SEED,
        node::XATTR_NODE_OFFSET
    )
    .unwrap();
    for s in structures() {
        writeln!(out, "\n## {}\n\n`{}`, {} bytes\n", s.title, s.name, s.size).unwrap();
        writeln!(out, "| offset | bytes | field | |\n|---|---|---|---|").unwrap();
        for (at, len, name, meaning) in s.fields {
            writeln!(out, "| {at} | {len} | {name} | {meaning} |").unwrap();
        }
    }
    areas(&mut out);
    writeln!(out, "\n## Logs\n\n| number | log |\n|---|---|").unwrap();
    for log in LogType::ALL {
        writeln!(out, "| {} | {log:?} |", log.index()).unwrap();
    }
    flags::<Features>(&mut out, "Features", u64::from);
    flags::<CpFlags>(&mut out, "Checkpoint flags", u64::from);
    flags::<Inline>(&mut out, "Inline flags", u64::from);
    flags::<Advise>(&mut out, "Advice", u64::from);
    flags::<InodeFlags>(&mut out, "Inode flags", u64::from);
    out
}

#[test]
fn the_layout_document_is_what_the_structures_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/format.md");
    let ours = render();
    if std::env::var_os("JOULEFS_RENEW").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &ours).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    for (n, (stored, ours)) in stored.lines().zip(ours.lines()).enumerate() {
        assert_eq!(stored, ours, "docs/format.md, line {}", n + 1);
    }
    assert!(stored == ours, "docs/format.md has more or fewer lines than it should");
}

#[test]
fn no_structure_has_a_gap_or_an_overlap() {
    for s in structures() {
        let mut end = 0;
        for (at, len, name, _) in s.fields {
            assert_eq!(at, end, "{}.{name}", s.name);
            end += len;
        }
        assert_eq!(end, s.size, "{}", s.name);
    }
}

/// Offsets found on images from other tools, independent of the structures' definitions.
#[test]
fn fields_lie_where_they_were_found_on_volumes_of_others() {
    let all = structures();
    let offset = |structure: &str, field: &str| {
        let s = all.iter().find(|s| s.name == structure).unwrap();
        s.fields.iter().find(|f| f.2 == field).unwrap_or_else(|| panic!("{structure}.{field}")).0
    };
    for (structure, fields) in [
        (
            "RawSuperBlock",
            &[
                ("log_blocksize", 16),
                ("segs_per_sec", 24),
                ("checksum_offset", 32),
                ("block_count", 36),
                ("section_count", 44),
                ("segment0_blkaddr", 72),
                ("main_blkaddr", 92),
                ("root_ino", 96),
                ("uuid", 108),
                ("volume_name", 124),
                ("extension_count", 1148),
                ("extension_list", 1152),
                ("cp_payload", 1664),
                ("version", 1668),
                ("init_version", 1924),
                ("feature", 2180),
                ("devs", 2201),
                ("qf_ino", 2745),
                ("hot_ext_count", 2757),
                ("s_encoding", 2758),
                ("s_stop_reason", 2762),
                ("s_errors", 2794),
                ("reserved", 2810),
                ("crc", 3068),
            ][..],
        ),
        (
            "RawCheckpoint",
            &[
                ("user_block_count", 8),
                ("valid_block_count", 16),
                ("free_segment_count", 32),
                ("cur_node_segno", 36),
                ("cur_node_blkoff", 68),
                ("cur_data_segno", 84),
                ("cur_data_blkoff", 116),
                ("ckpt_flags", 132),
                ("cp_pack_start_sum", 140),
                ("valid_node_count", 144),
                ("next_free_nid", 152),
                ("sit_ver_bitmap_bytesize", 156),
                ("checksum_offset", 164),
                ("elapsed_time", 168),
                ("alloc_type", 176),
            ],
        ),
        (
            "RawInode",
            &[
                ("i_inline", 3),
                ("i_uid", 4),
                ("i_links", 12),
                ("i_size", 16),
                ("i_blocks", 24),
                ("i_atime", 32),
                ("i_ctime", 40),
                ("i_mtime", 48),
                ("i_atime_nsec", 56),
                ("i_generation", 68),
                ("i_current_depth", 72),
                ("i_xattr_nid", 76),
                ("i_flags", 80),
                ("i_pino", 84),
                ("i_namelen", 88),
                ("i_name", 92),
                ("i_dir_level", 347),
                ("i_ext", 348),
                ("i_addr", 360),
                ("i_nid", 4052),
                ("footer", 4072),
            ],
        ),
        (
            "RawExtra",
            &[
                ("i_inline_xattr_size", 2),
                ("i_projid", 4),
                ("i_inode_checksum", 8),
                ("i_crtime", 12),
                ("i_crtime_nsec", 20),
                ("i_compr_blocks", 24),
                ("i_compress_algorithm", 32),
                ("i_log_cluster_size", 33),
                ("i_compress_flag", 34),
            ],
        ),
    ] {
        for &(field, at) in fields {
            assert_eq!(offset(structure, field), at, "{structure}.{field}");
        }
    }
}
