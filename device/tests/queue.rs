//! Costs of concurrent requests: the same as one after the other, except for what they share.

use std::sync::{Arc, Barrier};
use std::thread;

use device::clock::Clock;
use device::energy::profile::Profile;
use device::energy::{Bill, Component, Energy, Ledger, Meter, Nanos, Operation, Part};
use device::model::{self, Ask, Model, Pace, Simulated};
use device::queue::Queue;
use device::{BLOCK, BlockDevice, DeviceError, Lba, Memory, RealClock, Rng, Tag, Time, VirtualClock};

const BLOCKS: u64 = 64 * 1024;

struct Bench {
    device: Simulated<Memory>,
    clock: Arc<VirtualClock>,
    profile: Profile,
}

fn filled(profile: &Profile) -> Box<dyn Model> {
    let mut model = model::build(profile, BLOCKS).expect("small");
    model.fill(Nanos(0), &[(Lba(0), BLOCKS / 2)]);
    model
}

impl Bench {
    fn new(profile: &str) -> Self {
        let profile = Profile::find(profile).expect("shipped");
        let clock = Arc::new(VirtualClock::new(Time::default()));
        let meter = Arc::new(Meter::new(profile.host.prices()));
        let device = Simulated::new(Memory::new(BLOCKS), filled(&profile), meter, Pace::Virtual(clock.clone()));
        Bench { device, clock, profile }
    }
}

/// Requests with pauses between them: mostly small ones close together, as from several programs.
fn requests(seed: u64, reads_only: bool) -> Vec<(Nanos, Ask, Tag)> {
    let mut rng = Rng::new(seed);
    let mut at = 0;
    (0..2_000)
        .map(|_| {
            at += if rng.below(20) == 0 { rng.below(400_000_000) } else { rng.below(60_000) };
            let blocks = 1 + if rng.below(10) == 0 { rng.below(200) } else { rng.below(4) };
            let place = Lba(rng.below(BLOCKS - blocks));
            let ask = match rng.below(20) {
                _ if reads_only => Ask::Read { at: place, blocks },
                0 => Ask::Flush,
                1 => Ask::Discard { at: place, blocks },
                2..10 => Ask::Write { at: place, blocks },
                _ => Ask::Read { at: place, blocks },
            };
            (Nanos(at), ask, Tag { cause: rng.below(5) as u8, owner: rng.below(7) })
        })
        .collect()
}

/// Submits all requests, each at its time if the device permits; returns when each was submitted and done.
fn give(device: &dyn Queue, requests: &[(Nanos, Ask, Tag)]) -> Vec<(Nanos, Nanos)> {
    let give = |(at, ask, tag): &(Nanos, Ask, Tag)| {
        let done = device.submit(*at, *ask, *tag).expect("within the device");
        (*at, done)
    };
    let all = requests.iter().map(give).collect();
    device.drain();
    all
}

/// Makes the same request through a call.
fn call(device: &dyn BlockDevice, ask: Ask, tag: Tag) {
    let mut bytes = vec![0; 256 * BLOCK];
    let done = match ask {
        Ask::Read { at, blocks } => device.read(at, &mut bytes[..blocks as usize * BLOCK], tag),
        Ask::Write { at, blocks } => device.write(at, &bytes[..blocks as usize * BLOCK], tag),
        Ask::Flush => device.flush(tag),
        Ask::Discard { at, blocks } => device.discard(at, blocks, tag),
        Ask::Remap { from, to, blocks, how } => device.remap(from, to, blocks, how, tag),
    };
    done.expect("within the device");
}

#[test]
fn one_request_at_a_time_costs_what_calls_cost_to_the_picojoule() {
    for profile in ["kirin9000-ufs31", "galaxy-nexus-emmc", "laptop-disk-4200"] {
        let (queue, calls) = (Bench::new(profile), Bench::new(profile));
        for (at, ask, tag) in requests(1, false) {
            let at = at.max(queue.device.now());
            let done = queue.device.submit(at, ask, tag).expect("within the device");
            assert_eq!(queue.device.drain(), done);
            calls.clock.advance(at.duration().saturating_sub(calls.clock.monotonic()));
            call(&calls.device, ask, tag);
            assert_eq!(Nanos::from_duration(calls.clock.monotonic()), done, "{profile}: {ask:?}");
        }
        assert!(queue.device.ledger() == calls.device.ledger(), "{profile}");
        assert_eq!(queue.device.counters(), calls.device.counters(), "{profile}");
    }
}

/// The time in which at least one request was under way.
fn union(mut times: Vec<(Nanos, Nanos)>) -> Vec<Nanos> {
    times.sort_unstable();
    let mut runs: Vec<(Nanos, Nanos)> = Vec::new();
    for (from, to) in times {
        match runs.last_mut() {
            Some(last) if from < last.1 => last.1 = last.1.max(to),
            _ => runs.push((from, to)),
        }
    }
    runs.into_iter().map(|(from, to)| to.since(from)).collect()
}

#[test]
fn requests_of_a_queue_end_when_the_model_says_and_pay_the_board_together_once() {
    let Bench { device, profile, .. } = Bench::new("kirin9000-ufs31");
    let requests = requests(2, false);
    let times = give(&device, &requests);

    // The model alone with the same requests.
    let (mut model, mut bill) = (filled(&profile), Bill::default());
    let mut under_way: Vec<Nanos> = Vec::new();
    let (mut last, mut most) = (Nanos(0), 0);
    for ((at, ask, tag), (_, done)) in requests.iter().zip(&times) {
        // A request beyond the queue's capacity arrives when the first of them ends.
        let mut now = last.max(*at);
        under_way.retain(|end| *end > now);
        while under_way.len() >= model.queue() {
            now = *under_way.iter().min().expect("not empty");
            under_way.retain(|end| *end > now);
        }
        assert_eq!(model.serve(now, *ask, *tag, &mut bill), *done);
        under_way.push(*done);
        (last, most) = (now, most.max(under_way.len()));
    }
    assert!(most > 8, "{most} at once at most: nothing was shared");
    let earlier = times.windows(2).filter(|w| w[1].1 < w[0].1).count();
    assert!(earlier > 100, "{earlier} requests of 2000 ended before the one before");

    let ledger = device.ledger();
    let awake: Energy = union(times.clone()).into_iter().map(|time| profile.host.prices().board.over(time)).sum();
    let gaps: Energy = ledger.part(Part::Board) - awake;
    let span = device.now();
    let quiet = span.since(union(times).into_iter().fold(Nanos(0), |a, b| a + b));
    let expected = profile.host.prices().board_idle.over(quiet);
    assert!(gaps.0.abs_diff(expected.0) <= 1000, "{gaps} of pauses, {expected} by their length");
}

/// Energy of the device and the processor for requests.
fn active(ledger: &Ledger) -> Vec<(Part, Energy)> {
    let waits = [Part::Board, Part::Idle, Part::Sleep];
    Part::ALL.iter().filter(|p| !waits.contains(p)).map(|p| (*p, ledger.part(*p))).collect()
}

#[test]
fn joules_fall_by_what_overlaps_and_by_nothing_else() {
    let (one, many) = (Bench::new("kirin9000-ufs31"), Bench::new("kirin9000-ufs31"));
    let requests = requests(3, true);
    let mut alone = Vec::new();
    for (at, ask, tag) in &requests {
        let at = one.device.now().max(*at);
        alone.push((at, one.device.submit(at, *ask, *tag).expect("within the device")));
        one.device.drain();
    }
    let together = give(&many.device, &requests);
    let (one, many) = (one.device.ledger(), many.device.ledger());
    assert_eq!(active(&one), active(&many), "the same reads do the same work");
    let ([alone, together], board) =
        ([alone, together].map(|t| union(t).into_iter().fold(Nanos(0), |a, b| a + b)), Component::Board);
    assert!(together.0 * 2 < alone.0, "{together:?} of {alone:?}: hardly anything overlapped");
    assert!(many.component(board) < one.component(board));
    assert_eq!(many.operation(Operation::Read).operations, 2_000);
}

/// Every request takes 200 milliseconds, with up to eight at once.
struct Slow;

const LONG: Nanos = Nanos(200_000_000);

impl Model for Slow {
    fn blocks(&self) -> u64 {
        64
    }
    fn queue(&self) -> usize {
        8
    }
    fn serve(&mut self, now: Nanos, _: Ask, _: Tag, _: &mut Bill) -> Nanos {
        now + LONG
    }
    fn wait(&mut self, _: Nanos, _: &mut Bill) {}
    fn power_cycle(&mut self, now: Nanos, _: &mut Bill) -> Nanos {
        now
    }
    fn cut(&mut self, _: Nanos) -> Vec<Lba> {
        Vec::new()
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

#[test]
fn threads_on_a_paced_device_wait_side_by_side_and_share_the_board() {
    let profile = Profile::find("kirin9000-ufs31").expect("shipped");
    let device = Simulated::new(
        Memory::new(64),
        Box::new(Slow),
        Arc::new(Meter::new(profile.host.prices())),
        Pace::Paced(Arc::new(RealClock::new())),
    );
    let start = Barrier::new(4);
    thread::scope(|s| {
        for owner in 0..4 {
            let (device, start) = (&device, &start);
            s.spawn(move || {
                start.wait();
                device.read(Lba(owner), &mut [0; BLOCK], Tag { cause: 1, owner }).expect("a read");
            });
        }
    });
    device.drain();
    let ledger = device.ledger();
    let board = ledger.operation(Operation::Read).energy - ledger.component(Component::Cpu);
    assert_eq!(ledger.operation(Operation::Read).operations, 4);
    let alone = profile.host.prices().board.over(LONG);
    assert!(board < alone.times(4), "four that wait at once pay less than four times one");
    assert!(board >= alone);
}

#[test]
fn what_the_device_does_not_have_is_refused_and_costs_nothing() {
    let Bench { device, .. } = Bench::new("kirin9000-ufs31");
    let before = device.ledger();
    let beyond = Ask::Read { at: Lba(BLOCKS - 1), blocks: 2 };
    assert!(matches!(device.submit(Nanos(5), beyond, Tag::default()), Err(DeviceError::OutOfRange { .. })));
    assert!(device.ledger() == before);
}
