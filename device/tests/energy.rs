//! Profiles record the sources of their numbers; every joule is in every account.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::energy::profile::{Profile, ProfileError, SHIPPED};
use device::energy::{Bill, Component, Energy, Ledger, Meter, Nanos, Operation, Part, Purpose, Work};
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

/// Performs a random operation with costs; some for several owners, with amounts that do not divide evenly.
fn spend(meter: &Meter, rng: &mut device::Rng, bill: &mut Bill) {
    bill.clear();
    for _ in 0..rng.below(4) {
        bill.add(Part::ALL[rng.index(Part::ALL.len())], Energy(rng.below(3) * rng.below(1 << 40)));
    }
    let tag = Tag { cause: rng.below(20) as u8, owner: rng.below(50) };
    let owners: Vec<u64> = (0..rng.below(9)).map(|_| rng.below(50)).collect();
    let (took, operation) = (Nanos(rng.below(1_000_000)), Operation::ALL[rng.index(5)]);
    match rng.below(5) {
        0 => meter.work(Work::Program, tag, took, took, bill),
        1 => meter.time(Operation::Idle, Tag::default(), took, bill),
        2 => meter.share(operation, tag, &owners, Energy(rng.below(1 << 30))),
        3 => meter.request_for(operation, tag, &owners, rng.below(99), took, bill),
        _ => meter.request(operation, tag, rng.below(99), took, bill),
    }
}

/// Every account of a ledger is the sum of its amounts, to the last picojoule.
fn accounts_agree(ledger: &Ledger) {
    let total = ledger.total();
    let amounts: Vec<_> = ledger.amounts().collect();
    let sum = |of: &dyn Fn(&(Purpose, Part, Energy)) -> bool| -> Energy {
        amounts.iter().filter(|amount| of(amount)).map(|(.., energy)| *energy).sum()
    };
    assert_eq!(sum(&|_| true), total);
    assert_eq!(Component::ALL.map(|c| ledger.component(c)).into_iter().sum::<Energy>(), total);
    assert_eq!(ledger.causes().map(|c| ledger.cause(c)).sum::<Energy>(), total);
    for operation in Operation::ALL {
        assert_eq!(sum(&|(p, ..)| p.operation == operation), ledger.operation(operation).energy, "{operation:?}");
    }
    for cause in 0..=u8::MAX {
        for part in Part::ALL {
            assert_eq!(
                sum(&|(p, of, _)| p.cause == cause && of == part),
                ledger.part_for(*part, cause),
                "{cause} {part:?}"
            );
        }
    }
    let owners = ledger.owners();
    assert_eq!(owners.values().flatten().copied().sum::<Energy>(), total);
    for (owner, energies) in &owners {
        let of = |c| sum(&|(p, part, _)| p.owner == *owner && part.component() == c);
        assert_eq!(Component::ALL.map(of), *energies, "{owner}");
        assert_eq!(ledger.owner(*owner), *energies, "{owner}");
    }
    assert_eq!(ledger.owner(u64::MAX), [Energy::ZERO; 4]);
}

fn meter() -> Meter {
    Meter::new(Profile::find("kirin9000-ufs31").unwrap().host.prices())
}

#[test]
fn every_amount_is_in_each_account() {
    let (meter, mut rng, mut bill) = (meter(), device::Rng::new(7), Bill::default());
    let mut earlier = meter.ledger();
    for n in 0..6_000 {
        spend(&meter, &mut rng, &mut bill);
        if n == 2_500 {
            earlier = meter.ledger();
        }
    }
    let ledger = meter.ledger();
    assert!(ledger.total() > Energy::ZERO);
    accounts_agree(&ledger);
    accounts_agree(&earlier);
    let since = ledger.since(&earlier);
    accounts_agree(&since);
    assert_eq!(since.total() + earlier.total(), ledger.total());
    assert_eq!(ledger.since(&ledger).total(), Energy::ZERO);
    assert_eq!(ledger.since(&ledger).owners().len(), 0);
    assert_eq!(ledger.since(&Default::default()), ledger);
    assert_eq!(ledger.since(&since), earlier);
    assert_ne!(since, ledger);
}

#[test]
fn threads_that_book_at_once_leave_what_they_leave_one_after_the_other() {
    let (many, one) = (meter(), meter());
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let many = &many;
            scope.spawn(move || {
                let (mut rng, mut bill) = (device::Rng::new(seed), Bill::default());
                (0..3_000).for_each(|_| spend(many, &mut rng, &mut bill));
            });
        }
    });
    for seed in 0..4 {
        let (mut rng, mut bill) = (device::Rng::new(seed), Bill::default());
        (0..3_000).for_each(|_| spend(&one, &mut rng, &mut bill));
    }
    assert!(many.ledger() == one.ledger());
    accounts_agree(&many.ledger());
    assert_eq!(many.look(Ledger::total), one.ledger().total());
}

/// Shares computed from the definition, block by block: equal ones, and the last block's owner pays the remainder.
#[test]
fn a_request_of_several_owners_is_divided_block_by_block() {
    let mut rng = device::Rng::new(11);
    for _ in 0..500 {
        let (meter, mut bill) = (meter(), Bill::default());
        bill.add(Part::FlashProgram, Energy(rng.below(1 << 20)));
        bill.add(Part::FlashErase, Energy(rng.below(20)));
        let owners: Vec<u64> = (0..1 + rng.below(40)).map(|_| rng.below(6)).collect();
        let tag = Tag { cause: 3, owner: owners[owners.len() - 1] };
        meter.request_for(Operation::Write, tag, &owners, owners.len() as u64, Nanos(rng.below(9)), &mut bill);
        let mut plain: BTreeMap<(u64, Part), u64> = BTreeMap::new();
        for (part, energy) in bill.amounts() {
            let share = energy.0 / owners.len() as u64;
            owners.iter().for_each(|o| *plain.entry((*o, *part)).or_default() += share);
            *plain.entry((tag.owner, *part)).or_default() += energy.0 - share * owners.len() as u64;
        }
        plain.retain(|_, e| *e > 0);
        let booked = meter.ledger();
        let booked = booked.amounts().map(|(p, part, e)| ((p.owner, part), e.0)).collect::<BTreeMap<_, _>>();
        assert_eq!(booked, plain, "{owners:?}");
    }
}

#[test]
fn owners_of_one_request_share_its_cost_without_loss() {
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
    // Decorators pass the owners on.
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
