//! Both kernels make the same choices with the unpatched policies: victims, targets, costs.

use std::path::Path;

use judges::oracle::cleaning::record;
use judges::oracle::linux::Linux;
use judges::oracle::victims::{Fixture, Step, Victim};
use trials::worn::{BATCHES, Image, LARGE, SECTIONS, SMALL};

use super::{kernel, patched};

fn victims(linux: Linux, image: &Path, script: &str) -> Vec<Victim> {
    let work = tempfile::tempdir().expect("a directory");
    let copy = work.path().join("image");
    std::fs::copy(image, &copy).expect("a copy");
    let fixture: Fixture = record(linux, &copy, &[], script).unwrap_or_else(|e| panic!("{e}"));
    let steps = fixture.mounts.into_iter().flat_map(|m| m.steps);
    steps.filter_map(|step| if let Step::Victim(v) = step { Some(v) } else { None }).collect()
}

#[test]
fn unpatched_policies_choose_as_before() {
    let (Some(stock), Some(patched)) = (kernel("JOULEFS_LINUX_STOCK"), patched()) else { return };
    let background = "for i in $(seq 40); do clean background; done; umnt";
    let scripts: [(Image, String); 7] = [
        (LARGE, format!("mnt background_gc=off; {background}")),
        (LARGE, format!("mnt background_gc=off; knob gc_idle 2; {background}")),
        (LARGE, format!("mnt background_gc=off,atgc; {background}")),
        (LARGE, format!("mnt background_gc=off; knob gc_urgent 1; {background}")),
        (
            SMALL,
            "mnt background_gc=off,mode=lfs; for i in $(seq 8); do fill new$i 10; clean foreground; done; umnt".into(),
        ),
        (BATCHES, format!("mnt background_gc=off,atgc; knob atgc_age_threshold 86400; {background}")),
        (SECTIONS, format!("mnt background_gc=off; {background}")),
    ];
    let work = tempfile::tempdir().expect("a directory");
    let mut all = 0;
    for (image, script) in scripts {
        let path = work.path().join("image");
        image.build(&path).expect("an image");
        let [before, after] = [&stock, &patched].map(|linux| victims(linux.clone(), &path, &script));
        let essence = |v: &Victim| (v.log, v.gc, v.purpose, v.policy, v.segment, v.cost);
        let differ = before.iter().zip(&after).position(|(a, b)| essence(a) != essence(b));
        if let Some(n) = differ {
            panic!("{script}\nchoice {n}: {}\npatched:   {}", before[n], after[n]);
        }
        assert_eq!(before.len(), after.len(), "{script}");
        assert!(before.len() >= 8, "{script}: {} choices", before.len());
        println!("{} choices alike: {script}", before.len());
        all += before.len();
    }
    println!("{all} choices of unpatched policies, alike under both kernels");
}
