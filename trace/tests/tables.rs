//! Tables of requests are read: those of known formats, and any table by its columns. The lines are written by hand from
//! the documentation of the formats.

use trace::block::{Action, DeviceId, Events, Op};
use trace::{Format, Opened, TraceError};

use crate::text::{self, line_of, read, survives_damage};

const MSR: &str = "\
128166372003061629,usr,0,Read,7014609920,24576,41286
128166372016382155,usr,1,Write,1317441536,8192,1963
128166372026382245,web,0,Write,1001,512,0
";

const SYSTOR: &str = "\
1456095145.133076000,0.000806000,R,0,899056122368,131072
1456095145.233076000,,W,4,4096,512
1456095145.333076000,-0.5,W,4,4096,0
1456095145.433076000,0.1,,6,4096,4096
";

fn devices(bytes: &[u8]) -> Vec<String> {
    let Ok(Opened::Blocks(mut events)) = text::open(bytes) else { panic!("no block events") };
    let events: &mut dyn Events = &mut *events;
    let mut out = vec![];
    while let Some(event) = events.next().unwrap() {
        out.push(events.device(event.device).unwrap_or_default());
    }
    out
}

#[test]
fn a_line_of_cambridge_is_a_request_from_issue_to_end() {
    let seen = read(MSR.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let [a, b, c] = seen.events[..] else { panic!("{:?}", seen.events) };
    assert_eq!((a.time, a.action, a.op), (12_816_637_200_306_162_900, Action::Issue, Op::Read));
    assert_eq!((a.sector, a.sectors, a.took), (7_014_609_920 / 512, 48, Some(4_128_600)));
    assert_eq!((b.op, b.sectors, b.took), (Op::Write, 16, Some(196_300)));
    assert_eq!((c.sector, c.sectors), (1, 2), "bytes 1001 to 1512 lie in sectors 1 and 2");
    assert_eq!(seen.others["requests not in whole sectors"], 1);
    assert!(a.device.major == b.device.major && b.device.major != c.device.major);
    assert_eq!(devices(MSR.as_bytes()), ["usr 0", "usr 1", "web 0"]);
}

#[test]
fn a_line_of_systor_is_a_request_if_its_answer_was_seen() {
    let seen = read(SYSTOR.as_bytes());
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let [a, b, c] = seen.events[..] else { panic!("{:?}", seen.events) };
    assert_eq!((a.time, a.op, a.took), (1_456_095_145_133_076_000, Op::Read, Some(806_000)));
    assert_eq!((a.sector, a.sectors), (899_056_122_368 / 512, 256));
    assert_eq!((b.device, b.sector, b.sectors, b.took), (DeviceId { major: 0, minor: 4 }, 8, 1, None));
    assert_eq!((c.op, c.sectors, c.took), (Op::Write, 0, None));
    let others: Vec<_> = seen.others.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    assert_eq!(others, [("impossible times of response", 2), ("requests without an operation", 1)]);
}

#[test]
fn a_header_is_optional() {
    for (header, lines) in [
        ("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", MSR),
        ("Timestamp,Response,IOType,LUN,Offset,Size", SYSTOR),
    ] {
        for end in ["\n", "\r\n"] {
            let with = format!("{header}\n{lines}").replace('\n', end);
            let seen = read(with.as_bytes());
            assert!(seen.error.is_none(), "{:?}", seen.error);
            assert_eq!(seen.events, read(lines.as_bytes()).events);
        }
        assert!(read(format!("{header}\n").as_bytes()).events.is_empty());
    }
}

#[test]
fn every_error_names_its_line() {
    for (good, bad, what) in [
        (MSR, "128166372003061629,usr,0,Read,1,2", "7 columns"),
        (MSR, "128166372003061629,usr,0,Read,1,2,3,4", "7 columns"),
        (MSR, "x,usr,0,Read,1,2,3", "time"),
        (MSR, "1281663720030616290,usr,0,Read,1,2,3", "time"),
        (MSR, "128166372003061629,usr,a,Read,1,2,3", "device"),
        (MSR, "128166372003061629,usr,0,read!,1,2,3", "op"),
        (MSR, "128166372003061629,usr,0,Read,-1,2,3", "offset"),
        (MSR, "128166372003061629,usr,0,Read,1,,3", "bytes"),
        (MSR, "128166372003061629,usr,0,Read,18446744073709551615,2,3", "sum"),
        (MSR, "128166372003061629,usr,0,Read,1,2,x", "took"),
        (SYSTOR, "1.0,0.1,R,0,1", "6 columns"),
        (SYSTOR, "yesterday,0.1,R,0,1,2", "time"),
        (SYSTOR, "1.0,fast,R,0,1,2", "took"),
        (SYSTOR, "1.0,0.1,X,0,1,2", "op"),
        (SYSTOR, "1.0,0.1,,0,1,two", "bytes"),
    ] {
        let seen = read(format!("{good}{bad}\n{good}").as_bytes());
        assert_eq!((seen.events.len(), line_of(&seen)), (3, good.lines().count() as u64 + 1), "{bad}");
        let text = seen.error.unwrap().to_string();
        assert!(text.contains(what), "{text}");
    }
    assert!(matches!(read(b"1,2,3,4,5,6\n").error, Some(TraceError::Unknown { .. })));
}

/// What is read of a table: time, operation, first sector, sectors, device, process number and name, duration.
fn rows(table: &str) -> Vec<(u64, Op, u64, u64, (u32, u32), u32, String, Option<u64>)> {
    let seen = read(table.as_bytes());
    assert!(seen.error.is_none(), "{table}: {:?}", seen.error);
    of(&seen)
}

fn of(seen: &text::Seen) -> Vec<(u64, Op, u64, u64, (u32, u32), u32, String, Option<u64>)> {
    let row = |(e, name): (&trace::block::Event, &String)| {
        (e.time, e.op, e.sector, e.sectors, (e.device.major, e.device.minor), e.pid, name.clone(), e.took)
    };
    seen.events.iter().zip(&seen.names).map(row).collect()
}

fn format_of(table: &str) -> Format {
    text::open(table.as_bytes()).unwrap_or_else(|e| panic!("{table}: {e}")).format()
}

const ALIBABA: &str = "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n";
const TENCENT: &str = "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n";
const SPC: &str = "0,20941264,8192,W,0.551706\n0,20939840,8192,W,0.554041\n1,3436288,15872,r,1.011732,note\n";
const FIU: &str = "89966777158147 4892 syslogd 904265560 8 W 6 0 531e779e2c52cb0ac37d53ad5d4d7a9d\n\
    89967277958471 2522 kjournald 907036872 8 R 6 0 2d6c7cd4fd5ab4a2a6bca3d6d7b4e0c1\n";
const DISKSIM: &str = "0.000000 0 123456 8 1\n1.250000 1 99 16 0\n2.500000 1 8 8 3\n";
const MQSIM: &str = "4851300 1 524288 16 0\n4864300 1 524304 16 1\n";
const FIO_LOG: &str = "1, 42180, 0, 4096, 0, 0\n3, 38900, 1, 8192, 40960, 0\n3, 500, 2, 4096, 8192, 0\n";
const BIOSNOOP: &str = "\
$ ./biosnoop -Q
TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  QUE(ms) LAT(ms)
0.000000    kworker/u72:1  13379  nvme1n1 W 1142400    4096      0.01    0.00
5.332998    Web Content    1061   nvme1n1 R 545728     16384     0.01  700.00
5.333044    xfsaild/nvme1n 1061   sda     WS 2349728   16384     0.02    0.64
";
const IOSNOOP: &str = "\
Tracing block I/O... Ctrl-C to end.
STARTs         ENDs           COMM             PID    TYPE DEV      BLOCK        BYTES     LATms
5982800.302061 5982800.302679 supervise        1809   W    202,1    17039600     4096       0.62
5982800.302423 5982800.302842 tar              1801   RM   202,16   17039608     4096       0.42
Ending tracing...
";

#[test]
fn traces_of_clouds_and_servers_are_read() {
    const US: u64 = 1000;
    let none = String::new();
    assert_eq!(format_of(ALIBABA), Format::Alibaba);
    assert_eq!(
        rows(ALIBABA),
        [
            (1_577_808_144_360_767 * US, Op::Write, 8_792_731_648 / 512, 32, (0, 419), 0, none.clone(), None),
            (1_577_808_144_360_813 * US, Op::Read, 59_110_326_272 / 512, 704, (0, 725), 0, none.clone(), None),
        ]
    );
    assert_eq!(format_of(TENCENT), Format::Tencent);
    assert_eq!(
        rows(TENCENT),
        [
            (1_538_323_200_000_000_000, Op::Read, 12_910_952, 128, (0, 1063), 0, none.clone(), None),
            (1_538_323_200_000_000_000, Op::Write, 6_338_688, 8, (0, 1627), 0, none.clone(), None),
        ]
    );
    assert_eq!(format_of(SPC), Format::Spc);
    assert_eq!(rows(SPC)[0], (551_706_000, Op::Write, 20_941_264, 16, (0, 0), 0, none.clone(), None));
    assert_eq!(rows(SPC)[2], (1_011_732_000, Op::Read, 3_436_288, 31, (0, 1), 0, none, None));
    assert_eq!(format_of(FIU), Format::Fiu);
    assert_eq!(rows(FIU)[0], (89_966_777_158_147, Op::Write, 904_265_560, 8, (6, 0), 4892, "syslogd".into(), None));
}

#[test]
fn traces_of_simulators_are_read_and_told_apart_by_their_times() {
    let none = String::new();
    assert_eq!((format_of(DISKSIM), format_of(MQSIM)), (Format::DiskSim, Format::MqSim));
    assert_eq!(
        rows(DISKSIM),
        [
            (0, Op::Read, 123_456, 8, (0, 0), 0, none.clone(), None),
            (1_250_000, Op::Write, 99, 16, (0, 1), 0, none.clone(), None),
            (2_500_000, Op::Read, 8, 8, (0, 1), 0, none.clone(), None),
        ]
    );
    assert_eq!(rows(MQSIM)[0], (4_851_300, Op::Write, 524_288, 16, (0, 1), 0, none.clone(), None));
    assert_eq!(rows(MQSIM)[1].1, Op::Read);
    assert_eq!(format_of(FIO_LOG), Format::FioLog);
    assert_eq!(
        rows(FIO_LOG),
        [
            (1_000_000, Op::Read, 0, 8, (0, 0), 0, none.clone(), None),
            (3_000_000, Op::Write, 80, 16, (0, 0), 0, none.clone(), None),
            (3_000_000, Op::Discard, 16, 8, (0, 0), 0, none, None),
        ]
    );
    // Without offsets, the fifth column is the priority.
    assert!(matches!(read(b"1, 42180, 0, 4096, 0\n2, 42180, 0, 4096, 0\n").error, Some(TraceError::Unknown { .. })));
}

#[test]
fn requests_that_tools_print_at_their_end_come_in_the_order_of_their_start() {
    assert_eq!((format_of(BIOSNOOP), format_of(IOSNOOP)), (Format::Biosnoop, Format::Iosnoop));
    assert_eq!(
        rows(BIOSNOOP),
        [
            (0, Op::Write, 1_142_400, 8, (1, 0), 13379, "kworker/u72:1".into(), Some(0)),
            (4_632_998_000, Op::Read, 545_728, 32, (1, 0), 1061, "Web Content".into(), Some(700_000_000)),
            (5_332_404_000, Op::Write, 2_349_728, 32, (2, 0), 1061, "xfsaild/nvme1n".into(), Some(640_000)),
        ]
    );
    assert_eq!(devices(BIOSNOOP.as_bytes()), ["nvme1n1", "nvme1n1", "sda"]);
    assert_eq!(
        rows(IOSNOOP),
        [
            (5_982_800_302_061_000, Op::Write, 17_039_600, 8, (202, 1), 1809, "supervise".into(), Some(620_000)),
            (5_982_800_302_423_000, Op::Read, 17_039_608, 8, (202, 16), 1801, "tar".into(), Some(420_000)),
        ]
    );
    let without = "COMM PID TYPE DEV BLOCK BYTES LATms\ntar 14794 RM 202,1 8457608 4096 7.53\n";
    let Ok(Opened::Blocks(mut events)) = text::open(without.as_bytes()) else { panic!("no block events") };
    assert!(events.next().unwrap().is_some_and(|e| e.time == 0 && e.took == Some(7_530_000)) && !events.timed());
}

#[test]
fn any_table_is_read_by_its_columns() {
    let wanted = [
        (1_700_000_000_000_000_000, Op::Read, 8, 16, (1, 0), 7, "a b".to_owned(), None),
        (1_700_000_000_500_000_000, Op::Write, 24, 8, (2, 0), 0, "c".to_owned(), None),
    ];
    let date = "time=1:datetime,op=2,offset=3:sector,bytes=4:KiB,device=5,pid=6,process=7";
    for (delimiter, header) in [(",", ""), (";", "when;op;lba;KiB;disk;pid;name\r\n"), ("\t", "# made by hand\n")] {
        let lines = ["2023-11-14 22:13:20,Read,8,8,sda,7,a b", "2023-11-14T22:13:20.5Z,W,24,4,sdb,0,c"];
        let table: String = lines.iter().map(|line| line.replace(',', delimiter) + "\n").collect();
        let seen = text::read_table(format!("{header}{table}").as_bytes(), date);
        assert!(seen.error.is_none(), "{:?}", seen.error);
        assert_eq!(of(&seen), wanted, "{delimiter:?}");
    }
    let spaces = "lba op page ms who bytes\n8 W 2 1.5 me 4096\n16 R 1 2.5 some name 8192\n";
    let columns = "offset=1:block,op=2:W=read:R=discard,time=4:ms,process=5,bytes=6";
    let seen = text::read_table(spaces.as_bytes(), columns);
    assert!(seen.error.is_none(), "{:?}", seen.error);
    let rows: Vec<_> =
        of(&seen).into_iter().map(|(time, op, sector, sectors, .., who, _)| (time, op, sector, sectors, who)).collect();
    assert_eq!(
        rows,
        [(1_500_000, Op::Read, 64, 8, "me".to_owned()), (2_500_000, Op::Discard, 128, 16, "some name".to_owned()),]
    );
    assert_eq!(seen.others["headers"], 1);
}

#[test]
fn a_last_line_without_line_end_counts_only_where_columns_are_given() {
    let columns = "time=1:us,op=2,offset=3,bytes=4";
    let seen = text::read_table(b"1,R,0,4096\n2,W,4096,4096", columns);
    assert!(seen.error.is_none() && seen.events.len() == 2, "{:?}", seen.error);
    assert!(read(ALIBABA.trim_end().as_bytes()).error.is_some_and(|e| e.is_cut_short()));
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    for table in [MSR, SYSTOR, ALIBABA, TENCENT, SPC, FIU, DISKSIM, MQSIM, FIO_LOG, BIOSNOOP, IOSNOOP] {
        text::drivers::request_tables(table.as_bytes());
        survives_damage(table.as_bytes());
    }
}

#[test]
fn an_unknown_table_is_refused_with_the_nearest_format_and_its_first_invalid_line() {
    let mut lines: Vec<&str> = MSR.lines().collect();
    lines.extend(["x", "y", "z"]);
    let Some(TraceError::Unknown { why, .. }) = read((lines.join("\n") + "\n").as_bytes()).error else {
        panic!("known")
    };
    assert!(why.contains("nearest format is MSR Cambridge CSV, which gives 3 events"), "{why}");
    assert!(why.contains("3 invalid lines skipped, the first is line 4, \"x\": it has not 7 columns"), "{why}");
    assert!(why.contains("blktrace, blkparse text"), "{why}");
}
