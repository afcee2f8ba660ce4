//! The report of an NVMe controller becomes idle states of a profile.
//!
//! The files in `nvme/` were printed by nvme-cli 1.12, 2.3 and 2.13 from the two structures next to them: one with
//! the power states of a Samsung 970 EVO Plus (from AnandTech's review), one with idle and active power in both
//! scales.

use std::path::PathBuf;

use device::energy::nvme::{Controller, LATENCY_LIMIT, NvmeError, Sleep, State};
use device::energy::profile::{Confidence, DeviceSpec, Profile};
use device::energy::{Bill, Nanos, Part, Power};
use device::model::{self, Ask};
use device::{Lba, Rng, Tag};

const FORMS: [&str; 7] = ["bin", "1.12.text", "1.12.json", "2.3.text", "2.3.json", "2.13.text", "2.13.json"];

fn file(name: &str, form: &str) -> Vec<u8> {
    let separator = if form == "bin" { "." } else { "-" };
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/nvme").join(format!("{name}{separator}{form}"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn state(most: u64, operational: bool, latency: [u64; 2], idle: Option<u64>, active: Option<u64>) -> State {
    let [entry, exit] = latency.map(|us| Nanos(us * 1000));
    State { most: Some(Power(most)), operational, entry, exit, idle: idle.map(Power), active: active.map(Power) }
}

fn evo() -> Controller {
    Controller {
        model: "Samsung SSD 970 EVO Plus 1TB".into(),
        firmware: "2B2QEXM7".into(),
        capacity: Some(1_000_204_886_016),
        autonomous: true,
        states: vec![
            state(7_800_000, true, [0, 0], None, None),
            state(6_000_000, true, [0, 0], None, None),
            state(3_400_000, true, [0, 0], None, None),
            state(70_000, false, [210, 1_200], None, None),
            state(10_000, false, [2_000, 8_000], None, None),
        ],
    }
}

#[test]
fn every_form_of_every_version_says_the_same() {
    let told = Controller {
        model: "Example With Idle Power".into(),
        firmware: "1".into(),
        capacity: None,
        autonomous: true,
        states: vec![
            state(5_500_000, true, [0, 0], Some(600_000), Some(3_500_000)),
            state(50_000, false, [3_000, 3_000], Some(40_000), None),
            state(2_500, false, [5_000, 45_000], Some(2_000), None),
        ],
    };
    for form in FORMS {
        assert_eq!(Controller::read(&file("970", form)).unwrap(), evo(), "{form}");
        assert_eq!(Controller::read(&file("idle", form)).unwrap(), told, "{form}");
    }
}

#[test]
fn output_of_2016_and_output_with_explanations_are_read() {
    // The power states of a Samsung 950, from nvme-cli's pull request 52, which introduced this form.
    let text = "NVME Identify Controller:\nvid     : 0x144d\nsn      : S\nmn      : A 950\nfr      : 1\n\
        apsta   : 0x1\n  [0:0] : 0x1\tAutonomous Power State Transitions Supported\nnpss    : 4\n\
        ps    0 : mp:6.50W operational enlat:5 exlat:5 rrt:0 rrl:0\n          rwt:0 rwl:0 idle_power:- active_power:-\n\
        ps    1 : mp:5.80W operational enlat:30 exlat:30 rrt:1 rrl:1\n          rwt:1 rwl:1 idle_power:- active_power:-\n\
        ps    2 : mp:3.60W operational enlat:100 exlat:100 rrt:2 rrl:2\n          rwt:2 rwl:2 idle_power:- active_power:-\n\
        ps    3 : mp:0.0700W non-operational enlat:500 exlat:5000 rrt:3 rrl:3\n          rwt:3 rwl:3 idle_power:- active_power:-\n\
        ps    4 : mp:0.0050W non-operational enlat:2000 exlat:22000 rrt:4 rrl:4\n          rwt:4 rwl:4 idle_power:- active_power:-\n";
    let controller = Controller::read(text.as_bytes()).unwrap();
    assert_eq!(controller.states[4], state(5_000, false, [2_000, 22_000], None, None));
    assert_eq!(controller.capacity, None);
    let sleeps = controller.sleeps(LATENCY_LIMIT);
    let expected = [(3, 100), (4, 2_100)].map(|(state, ms)| Sleep { state, after: Nanos(ms * 1_000_000) });
    assert_eq!(sleeps, expected);
}

/// The error's text on one line.
fn refused(bytes: &[u8]) -> String {
    let e = Controller::read(bytes).expect_err("refused").to_string();
    assert_eq!(e.lines().count(), 1, "{e}");
    e
}

#[test]
fn what_is_not_whole_is_refused_by_what_is_missing() {
    let text = String::from_utf8(file("970", "2.13.text")).unwrap();
    let without = |start: &str| {
        let lines: Vec<_> = text.lines().filter(|l| !l.starts_with(start)).collect();
        refused(lines.join("\n").as_bytes())
    };
    assert!(without("ps      4").contains("npss is 4"), "{}", without("ps      4"));
    assert!(without("ps      1").contains("power state 2 stands where power state 1 should"));
    assert!(without("mn").contains("model"));
    assert!(without("apsta").contains("apsta"));
    assert!(refused(text.replace("enlat:210", "").as_bytes()).contains("power state 3 has no enlat"));
    assert!(refused(text.replace("non-operational", "").as_bytes()).contains("operational"));
    let json = String::from_utf8(file("970", "2.3.json")).unwrap();
    assert!(refused(json.replace("\"exit_lat\":1200", "\"exit_lat\":\"?\"").as_bytes()).contains("power state 3"));
    assert!(refused(json.replace("psds", "pdds").as_bytes()).contains("psds"));
    assert!(refused(&json.as_bytes()[..json.len() - 9]).contains("JSON"));
    let raw = file("970", "bin");
    assert!(refused(&raw[..4095]).contains("text"), "{}", refused(&raw[..4095]));
    let mut many = raw.clone();
    many[263] = 32;
    assert!(refused(&many).contains("byte 263"));
    for nothing in [&b""[..], b"hello", b"{}", b"\xff\xfe", &[0; 4096], &[0xff; 4096]] {
        assert!(
            matches!(Controller::read(nothing), Err(NvmeError::Unknown(_))),
            "{:?}",
            &nothing[..nothing.len().min(9)]
        );
    }
}

#[test]
fn no_bytes_panic() {
    let mut rng = Rng::new(41);
    for name in ["970", "idle"] {
        for form in FORMS {
            let whole = file(name, form);
            for _ in 0..400 {
                let mut bytes = whole.clone();
                for _ in 0..1 + rng.below(6) {
                    let at = rng.index(bytes.len());
                    match rng.below(4) {
                        0 => bytes[at] = rng.below(256) as u8,
                        1 => bytes[at] = b"0123456789-:.\"{}[]W x"[rng.index(20)],
                        2 if form != "bin" => bytes.truncate(at + 1),
                        _ => bytes[at] ^= 1 << rng.below(8),
                    }
                }
                if let Ok(controller) = Controller::read(&bytes) {
                    controller.sleeps(LATENCY_LIMIT);
                    let base = Profile::text("kirin9000-ufs31").unwrap();
                    let _ = controller.profile("p", &base, "kirin9000-ufs31", None, LATENCY_LIMIT);
                }
            }
        }
    }
}

fn made(controller: &Controller, size: Option<u64>) -> (Profile, Vec<String>) {
    let base = Profile::text("samsung-970evoplus").unwrap();
    let made = controller.profile("mine", &base, "samsung-970evoplus", size, LATENCY_LIMIT).unwrap();
    (Profile::parse(&made.text, "mine").unwrap(), made.notes)
}

#[test]
fn the_profile_has_the_states_linux_uses_and_says_where_each_number_is_from() {
    let (profile, notes) = made(&evo(), None);
    let DeviceSpec::Flash(flash) = &profile.device else { panic!("flash") };
    assert_eq!((profile.name.as_str(), flash.size.value), ("mine", 1_000_204_886_016));
    let [ps4] = &flash.idle[..] else { panic!("{:?}", flash.idle) };
    assert_eq!(ps4.name, "ps4");
    assert_eq!((ps4.after.value, ps4.power.value), (Nanos(100_000_000), Power(10_000)));
    assert_eq!(ps4.wake.value, Nanos(8_000_000));
    assert_eq!(ps4.wake_energy.value, flash.ready.value.over(Nanos(10_000_000)));
    assert_eq!(ps4.wake_energy.confidence, Confidence::Assumed);
    assert!(ps4.wake_energy.source.contains("at most 78.000 mJ"), "{}", ps4.wake_energy.source);
    let report = "nvme id-ctrl of Samsung SSD 970 EVO Plus 1TB, firmware 2B2QEXM7, serial left out";
    for source in [&flash.size.source, &ps4.power.source, &ps4.wake.source] {
        assert!(source.starts_with(report), "{source}");
    }
    assert!(ps4.after.source.contains("nvme_configure_apst"), "{}", ps4.after.source);
    assert!(notes.iter().any(|n| n.contains("idle power of state 0")), "{notes:?}");
    // Everything else comes from the base.
    let base = Profile::find("samsung-970evoplus").unwrap();
    let DeviceSpec::Flash(own) = &base.device else { panic!("flash") };
    assert_eq!((&flash.nand, &flash.link, &flash.map, &profile.host), (&own.nand, &own.link, &own.map, &base.host));
}

#[test]
fn idle_power_that_is_reported_counts_and_a_size_that_is_given_too() {
    let controller = Controller::read(&file("idle", "bin")).unwrap();
    let (profile, notes) = made(&controller, Some(1 << 30));
    let DeviceSpec::Flash(flash) = &profile.device else { panic!("flash") };
    assert_eq!((flash.ready.value, flash.size.value), (Power(600_000), 1 << 30));
    let states: Vec<_> = flash.idle.iter().map(|i| (i.name.as_str(), i.after.value.0, i.power.value.0)).collect();
    assert_eq!(states, [("ps1", 100_000_000, 40_000), ("ps2", 2_100_000_000, 2_000)]);
    assert_eq!(notes, [] as [&str; 0]);
    let (_, notes) = made(&controller, None);
    assert!(notes.iter().any(|n| n.contains("no size is reported")), "{notes:?}");
}

#[test]
fn the_device_sleeps_and_wakes_as_its_profile_says() {
    let (profile, _) = made(&Controller::read(&file("idle", "2.3.text")).unwrap(), None);
    let mut device = model::build(&profile, 1 << 16).unwrap();
    let mut bill = Bill::default();
    let read = Ask::Read { at: Lba(0), blocks: 1 };
    let done = device.serve(Nanos(0), read, Tag::default(), &mut bill);
    let short = device.serve(done + Nanos(1_000_000), read, Tag::default(), &mut bill).since(done + Nanos(1_000_000));
    let done = done + Nanos(1_000_000) + short;
    bill.clear();
    let asked = done + Nanos(10_000_000_000);
    let woken = device.serve(asked, read, Tag::default(), &mut bill).since(asked);
    assert_eq!(woken, short + Nanos(45_000_000));
    let spent = |part| bill.amounts().iter().find(|(p, _)| *p == part).map_or(0, |(_, e)| e.0);
    assert_eq!(spent(Part::Idle), 600_000 * 100_000);
    // 2 s at 40 mW, 7.9 s at 2 mW, and 50 ms of entering and leaving at the 600 mW of the ready state, in
    // picojoules.
    assert_eq!(spent(Part::Sleep), (40_000 * 2_000_000) + (2_000 * 7_900_000) + 600_000 * 50_000);
}

#[test]
fn a_device_that_does_not_change_its_state_never_sleeps() {
    let (profile, notes) = made(&Controller { autonomous: false, ..evo() }, None);
    let DeviceSpec::Flash(flash) = &profile.device else { panic!("flash") };
    assert_eq!(flash.idle, []);
    assert!(notes.iter().any(|n| n.contains("apsta")), "{notes:?}");
}

#[test]
fn a_disk_is_no_base() {
    let base = Profile::text("microdrive").unwrap();
    let e = evo().profile("p", &base, "microdrive", None, LATENCY_LIMIT).unwrap_err();
    assert!(e.to_string().contains("profile of a disk"), "{e}");
}

#[test]
fn a_profile_without_idle_states_can_be_the_base() {
    let base = Profile::text("intel-s4500").unwrap();
    let made = evo().profile("p", &base, "intel-s4500", None, LATENCY_LIMIT).unwrap();
    let profile = Profile::parse(&made.text, "p").unwrap();
    let DeviceSpec::Flash(flash) = &profile.device else { panic!("flash") };
    assert_eq!(flash.idle.len(), 1);
}
