//! Profiles say where their numbers come from; every joule is in every account.

use std::sync::Arc;

use device::energy::profile::{Profile, ProfileError, SHIPPED};
use device::energy::{Bill, Component, Energy, Meter, Nanos, Operation, Part};
use device::model::{self, Pace, Simulated};
use device::{BLOCK, BlockDevice, Counting, Lba, Memory, Tag, Time, VirtualClock};

#[test]
fn every_shipped_profile_is_read_and_survives_being_written() {
    for (name, text) in SHIPPED {
        let profile = Profile::parse(text, name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(profile.name, *name);
        let again = toml::to_string(&profile).expect("a profile is written");
        assert_eq!(Profile::parse(&again, name).unwrap_or_else(|e| panic!("{e}")), profile);
    }
}

#[test]
fn a_profile_that_is_none_is_refused_with_the_culprit() {
    let text = SHIPPED[0].1;
    for (from, to, says) in [
        ("unit = \"uJ\"", "unit = \"furlongs\"", "furlongs"),
        ("confidence = \"fitted\"", "confidence = \"sure\"", "sure"),
        ("cpu_request = ", "cpu_requests = ", "cpu_requests"),
        ("spare = { value = 7,", "spare = { value = -7,", "-7"),
        ("spare = { value = 7,", "spare = { value = 0,", "spare"),
        ("page = { value = 16,", "page = { value = 3,", "nand.page"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Profile::parse(&text.replacen(from, to, 1), "some.toml").expect_err(to);
        let said = error.to_string();
        assert!(said.starts_with("profile some.toml: ") && said.contains(says), "{to}: {said}");
    }
    assert!(matches!(Profile::find("nothing"), Err(ProfileError::Unknown { .. })));
    assert!(matches!(Profile::find("no/such/file.toml"), Err(ProfileError::Unreadable { .. })));
}

#[test]
fn another_anchor_changes_times_and_powers_but_no_energy() {
    let slow = Profile::find("kirin9000-ufs31").unwrap();
    let fast = slow.clone().anchored(Nanos(slow.anchor.as_ref().unwrap().time.value.0 / 2));
    assert_eq!(fast.host.cpu_request, slow.host.cpu_request);
    let spent = |p: &Profile, time| p.host.board.value.over(Nanos(time)).joules();
    let (a, b) = (spent(&slow, 1_000_000), spent(&fast, 500_000));
    assert!((a / b - 1.0).abs() < 1e-3, "{a} {b}");
}

#[test]
fn every_amount_is_in_each_account() {
    let meter = Meter::new(Profile::find("kirin9000-ufs31").unwrap().host.prices());
    let (mut rng, mut bill) = (device::Rng::new(7), Bill::default());
    for _ in 0..10_000 {
        bill.clear();
        for _ in 0..rng.below(4) {
            bill.add(Part::ALL[rng.index(Part::ALL.len())], Energy(rng.below(1 << 40)));
        }
        let tag = Tag { cause: rng.below(20) as u8, owner: rng.below(50) };
        let took = Nanos(rng.below(1_000_000));
        match rng.below(3) {
            0 => meter.work(tag, took, took, &mut bill),
            1 => meter.time(Operation::Idle, tag, took, &mut bill),
            _ => meter.request(Operation::ALL[rng.index(5)], tag, rng.below(99), took, &mut bill),
        }
    }
    let ledger = meter.ledger();
    let total = ledger.total();
    assert!(total > Energy::ZERO);
    assert_eq!(Component::ALL.map(|c| ledger.component(c)).into_iter().sum::<Energy>(), total);
    assert_eq!(ledger.causes().map(|c| ledger.cause(c)).sum::<Energy>(), total);
    assert_eq!(ledger.owners().values().flatten().copied().sum::<Energy>(), total);
    assert_eq!(ledger.since(&ledger).total(), Energy::ZERO);
    assert_eq!(ledger.since(&Default::default()), ledger);
}

#[test]
fn who_shares_a_request_shares_its_cost_and_nothing_is_lost_of_it() {
    let profile = Profile::find("kirin9000-ufs31").unwrap();
    let device = || {
        let model = model::build(&profile, 1024).unwrap();
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let clock = Arc::new(VirtualClock::new(Time::default()));
        Arc::new(Simulated::new(Memory::new(1024), model, meter, Pace::Virtual(clock)))
    };
    let (one, shared) = (device(), device());
    let data = [7; 7 * BLOCK];
    one.write(Lba(8), &data, Tag { cause: 3, owner: 12 }).unwrap();
    // Decorators hand the owners on.
    let decorated = Counting::new(shared.clone());
    decorated.write_for(Lba(8), &data, &[10, 10, 10, 11, 12, 12, 12], 3).unwrap();
    assert_eq!((decorated.snapshot()[3].writes, decorated.snapshot()[3].blocks_written), (1, 7));
    let (alone, shared) = (one.ledger(), shared.ledger());
    assert_eq!((shared.total(), shared.cause(3)), (alone.total(), alone.total()));
    let of = |owner| shared.owner(owner).into_iter().sum::<Energy>();
    assert_eq!(of(10) + of(11) + of(12), alone.total());
    assert!(of(10) == of(11).times(3), "{} and {}", of(10), of(11));
    assert!(of(12) >= of(10) && of(12).0 - of(10).0 < 28, "what does not divide: {} and {}", of(12), of(10));
    assert_eq!(shared.owners().len(), 3);
}
