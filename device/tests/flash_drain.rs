//! A flash device whose buffer drains by itself: after some time writes are on flash even without further requests.

use device::energy::profile::Profile;
use device::energy::{Bill, Nanos, Part};
use device::model::{self, Ask, Model};
use device::{Lba, Tag};

const MS: u64 = 1_000_000;

fn flash(drain: bool) -> Box<dyn Model> {
    let profile = Profile::find("kirin9000-ufs31").expect("shipped");
    let profile =
        if drain { profile.with("device.drain", 100.0, Some("ms"), "tried").expect("a number") } else { profile };
    model::build(&profile, 16 * 1024).expect("small")
}

fn write(model: &mut dyn Model, now: u64, at: u64, bill: &mut Bill) -> u64 {
    model.serve(Nanos(now), Ask::Write { at: Lba(at), blocks: 3 }, Tag::default(), bill).0
}

fn n(model: &dyn Model, name: &str) -> u64 {
    model.counters().iter().find(|c| c.0 == name).expect("a counter").1
}

#[test]
fn what_was_written_is_programmed_a_while_later_and_a_power_cut_then_loses_nothing() {
    for (drain, waits, lost) in [(false, 5_000, 3), (true, 90, 3), (true, 120, 0)] {
        let (mut model, mut bill) = (flash(drain), Bill::default());
        let done = write(&mut *model, 0, 10, &mut bill);
        model.wait(Nanos(done + waits * MS), &mut bill);
        assert_eq!(model.cut(Nanos(done + waits * MS)).len(), lost, "after {waits} ms, draining: {drain}");
    }
}

#[test]
fn draining_pays_for_the_rest_of_its_row_and_a_writer_that_goes_on_does_not_drain() {
    let (mut model, mut bill) = (flash(true), Bill::default());
    let mut now = 0;
    for at in 0..21 {
        now = write(&mut *model, now + 50 * MS, 10 + 3 * at, &mut bill);
    }
    assert_eq!(n(&*model, "blocks_padded"), 0, "no pause was long enough");
    bill.clear();
    model.wait(Nanos(now + 200 * MS), &mut bill);
    let padded = n(&*model, "blocks_padded");
    assert!(padded > 0 && n(&*model, "blocks_programmed") == 63, "{:?}", model.counters());
    let program = bill.amounts().iter().find(|(part, _)| *part == Part::FlashProgram).expect("the padding");
    assert!(program.1.0 > 0);
    // One wait is enough.
    model.wait(Nanos(now + 900 * MS), &mut bill);
    assert_eq!(n(&*model, "blocks_padded"), padded);
}
