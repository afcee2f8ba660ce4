//! The activity during which the power fails.

use device::Rng;
use vfs::{Allocate, Moving};

use super::gather::{brought_together, torn};
use super::step::Step::{self, *};
use super::step::files;

/// A scenario: durable initial contents, and the activity during which the power may fail.
pub struct Scenario {
    /// Its name, as it is printed.
    pub name: &'static str,
    /// Steps for the initial contents.
    pub before: fn() -> Vec<Step>,
    /// The activity.
    pub during: fn() -> Vec<Step>,
}

impl Scenario {
    /// The size of its volume. On 64 MiB, logs fill holes from the beginning, and defragmentation is impossible.
    pub fn mib(&self) -> u64 {
        if self.name.starts_with("defragment") { 256 } else { 64 }
    }
}

fn nothing() -> Vec<Step> {
    Vec::new()
}

fn with_sync(names: &[&str], mut steps: Vec<Step>) -> Vec<Step> {
    steps.extend(names.iter().map(|n| Fsync((*n).into())));
    steps
}

/// Small files with block addresses in their inodes, of all ages, two thirds of them deleted, and a file with blocks
/// mapped partly by its inode, partly by the next node.
fn aged() -> Vec<Step> {
    let mut steps = vec![Create("large".into())];
    for n in 0..360usize {
        let f = format!("f{n}");
        steps.extend([
            Create(f.clone()),
            Write(f, 0, 9000 + n, n as u64),
            Write("large".into(), (700 + n as u64 * 2) * 4096, 8192, 1),
        ]);
        if n % 20 == 19 {
            steps.extend([Sync, Tick(3)]);
        }
    }
    steps.extend((0..360).filter(|n| n % 3 != 1).map(|n| Unlink(format!("f{n}"))));
    steps
}

/// Background cleaning; files whose blocks it just moved are synced unchanged, overwritten, removed.
fn cleaned_by(policy: &'static str) -> Vec<Step> {
    let mut rng = Rng::new(9);
    // `joule` cleans at any price up to this much free space; other policies ignore it.
    let mut steps = vec![Tune("gc", policy), Tune("gc_keep_free", "90"), Tune("atgc_age_threshold", "0")];
    // Without a request: background cleaning starts by itself.
    steps.extend([Create("begin".into()), Tick(20), Tick(61), Tick(61)]);
    for i in 0..24u64 {
        steps.push(Clean([64, 5, 200][i as usize % 3]));
        for k in 0..4 {
            let f = format!("f{}", 1 + 3 * rng.below(95));
            if k % 2 == 1 {
                steps.push(Write(f.clone(), rng.below(2) * 4096, 4096, i * 10 + k));
            }
            steps.push(if k == 3 { Fdatasync(f) } else { Fsync(f) });
        }
        steps.push(Write("large".into(), (700 + rng.below(700)) * 4096, 4096 * (1 + rng.index(3)), i));
        match i % 6 {
            1 => steps.push(Fsync("large".into())),
            3 => {
                steps.extend([Unlink(format!("f{}", 289 + 3 * i)), Create(format!("new{i}")), Fsync(format!("new{i}"))])
            }
            5 => steps.extend([Sync, Tick(2)]),
            _ => {}
        }
    }
    steps
}

/// Small changes of a file of `pages` pages, like those of databases, and events that remove deltas: pages overwritten
/// completely, truncation and growth, holes, cleaning.
fn nudged(pages: u64, rounds: u64) -> Vec<Step> {
    let mut rng = Rng::new(pages);
    let db = || String::from("f0");
    let mut steps = Vec::new();
    for i in 0..rounds {
        for _ in 0..1 + rng.below(3) {
            // Some cross a page boundary.
            steps.push(Write(db(), rng.below(pages * 4096), 1 + rng.index(60), i));
        }
        match i % 13 {
            3 => steps.push(Write(db(), rng.below(pages) * 4096, 4096, i)),
            5 => steps.extend([Truncate(db(), (pages - 3) * 4096 + 100), Write(db(), (pages - 1) * 4096, 3000, i)]),
            7 => steps.push(Fallocate(db(), Allocate::PunchHole, rng.below(pages) * 4096, 8192)),
            8 => steps.push(Clean(64)),
            9 => steps.push(Fallocate(db(), Allocate::Insert, 4096, 4096)),
            10 => steps.push(Fallocate(db(), Allocate::Collapse, 8192, 4096)),
            _ => {}
        }
        steps.push(if i % 3 == 0 { Fdatasync(db()) } else { Fsync(db()) });
        match i % 17 {
            11 => steps.push(Sync),
            14 => steps.push(Tick(70)),
            _ => {}
        }
    }
    steps
}

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "create", before: nothing, during: || files(30, 3000).into_iter().chain([Sync]).collect() },
    Scenario {
        name: "create-fsync",
        before: nothing,
        during: || {
            (0..12usize)
                .flat_map(|i| {
                    let f = format!("f{i}");
                    [Create(f.clone()), Write(f.clone(), 0, i * i * 900, i as u64), Fsync(f)]
                })
                .collect()
        },
    },
    Scenario {
        name: "append-fsync",
        before: || files(2, 5000),
        during: || {
            let mut at = [5000u64; 2];
            (0..24u64)
                .flat_map(|i| {
                    let f = format!("f{}", i % 2);
                    let place = &mut at[(i % 2) as usize];
                    let here = *place;
                    let len = 700 * (i as usize + 1);
                    *place += len as u64;
                    let sync = if i % 3 == 0 { Fdatasync(f.clone()) } else { Fsync(f.clone()) };
                    [Write(f, here, len, i), sync]
                })
                .collect()
        },
    },
    Scenario {
        name: "overwrite-fsync",
        before: || files(2, 300_000),
        during: || {
            let mut rng = Rng::new(1);
            (0..30)
                .flat_map(|i| {
                    let f = format!("f{}", i % 2);
                    let at = rng.below(280_000);
                    [Write(f.clone(), at, rng.index(20_000) + 1, i), if i % 4 == 1 { Fdatasync(f) } else { Fsync(f) }]
                })
                .collect()
        },
    },
    Scenario {
        name: "rename-over",
        before: || files(1, 6000),
        during: || {
            (0..8usize)
                .flat_map(|i| {
                    let t = "tmp".to_string();
                    let end = if i % 2 == 0 { Fsyncdir(String::new()) } else { Fsync("f0".into()) };
                    [
                        Create(t.clone()),
                        Write(t.clone(), 0, 2000 * (i + 1), i as u64),
                        Fsync(t.clone()),
                        Rename(t, "f0".into()),
                        end,
                    ]
                })
                .collect()
        },
    },
    Scenario {
        name: "journals",
        before: || files(1, 30_000),
        during: || {
            // Like SQLite's journals; one of four transactions syncs the deletion, too.
            let (j, db) = (|| "f0-journal".to_string(), || "f0".to_string());
            (0..16u64)
                .flat_map(|i| {
                    let mut steps = vec![Create(j()), Write(j(), 0, 9000, i), Fsync(j()), Fsyncdir(String::new())];
                    steps.extend([Write(db(), i * 1700 % 24_000, 5000, i), Fdatasync(db()), Unlink(j())]);
                    if i % 4 == 2 || i > 9 {
                        steps.push(Fsyncdir(String::new()));
                    }
                    if i == 9 {
                        // A checkpoint between: the next deletion concerns a name that was not created since.
                        steps.extend([Sync, Fsyncdir(String::new())]);
                    }
                    steps
                })
                .collect()
        },
    },
    Scenario {
        name: "deliveries",
        before: || vec![Mkdir("tmp".into()), Mkdir("new".into()), Mkdir("cur".into())],
        during: || {
            let mut steps = Vec::new();
            for i in 0..14usize {
                let (t, n, c) = ("tmp/m".to_string(), format!("new/{i}"), format!("cur/{}", i % 5));
                steps.extend([Create(t.clone()), Write(t.clone(), 0, 700 * i, i as u64)]);
                if i % 3 != 1 {
                    steps.push(Fsync(t.clone()));
                }
                steps.push(Rename(t, n.clone()));
                match i % 4 {
                    0 => steps.push(Fsyncdir("new".into())),
                    1 => steps.push(Fsyncdir("tmp".into())),
                    2 => steps.push(Fsync(n.clone())),
                    _ => {}
                }
                if i % 2 == 0 {
                    steps.extend([Rename(n, c), Fsyncdir("cur".into())]);
                } else if i % 3 == 0 {
                    steps.extend([Unlink(n), Fsyncdir("new".into())]);
                }
            }
            steps
        },
    },
    Scenario {
        name: "truncate",
        before: || files(4, 60_000),
        during: || {
            (0..16u64)
                .flat_map(|i| {
                    let f = format!("f{}", i % 4);
                    let mut steps = vec![Truncate(f.clone(), i * 7919 % 60_000)];
                    if i % 2 == 0 {
                        steps.push(Write(f.clone(), i * 3571 % 50_000, 9000, i));
                    }
                    if i % 3 == 0 {
                        steps.push(Fsync(f));
                    }
                    steps
                })
                .collect()
        },
    },
    Scenario {
        name: "large-file",
        before: || files(1, 100_000),
        during: || {
            let f = || "f0".to_string();
            let mut steps = Vec::new();
            // Past the inode's own addresses, over both direct nodes, into an indirect one.
            let places = [3_600_000u64, 3_500_000, 7_900_000, 12_000_000, 16_500_000, 3_604_000, 12_004_000];
            for (i, at) in places.into_iter().enumerate() {
                let sync = if i % 2 == 0 { Fsync(f()) } else { Fdatasync(f()) };
                steps.extend([Write(f(), at, 9000 + i * 4000, i as u64), sync]);
            }
            for (i, size) in [14_000_000u64, 7_899_000, 3_601_000, 50_000].into_iter().enumerate() {
                steps.extend([Truncate(f(), size), Write(f(), size + 1_000_000, 5000, i as u64)]);
                if i % 2 == 1 {
                    steps.push(Sync);
                }
                steps.extend([Write(f(), size / 2, 5000, i as u64 + 10), Fsync(f())]);
            }
            // Truncated and grown again since the checkpoint: the range between is a hole.
            for i in 0..3 {
                let grow = Write(f(), 10_000_000 + i * 1_000_000, 4000, i);
                let fill = Write(f(), 4_000_000, 3_000_000, i + 20);
                steps.extend([fill, grow.clone(), Sync, Truncate(f(), 3_000_000 + i), grow, Fsync(f())]);
            }
            steps
        },
    },
    Scenario {
        name: "late-fsync",
        before: || files(3, 40_000),
        during: || {
            // Data was written before it was requested to be durable.
            (0..9u64)
                .flat_map(|i| {
                    let f = format!("f{}", i % 3);
                    let write = Write(f.clone(), i * 9000 % 50_000, 20_000, i);
                    [write, Tick(6), if i % 2 == 0 { Fsync(f) } else { Fdatasync(f) }]
                })
                .collect()
        },
    },
    Scenario {
        name: "holes",
        before: || files(2, 200_000),
        during: || {
            let whats = [
                (Allocate::PunchHole, 10_000, 30_000),
                (Allocate::Reserve { keep_size: false }, 190_000, 50_000),
                (Allocate::Collapse, 8192, 20_480),
                (Allocate::Zero { keep_size: false }, 100_000, 130_000),
                (Allocate::Insert, 12_288, 16_384),
                (Allocate::Reserve { keep_size: true }, 200_000, 200_000),
                (Allocate::PunchHole, 0, 100_000),
            ];
            let mut steps = Vec::new();
            for (i, (what, at, len)) in whats.into_iter().cycle().take(14).enumerate() {
                let f = format!("f{}", i % 2);
                steps.push(Fallocate(f.clone(), what, at, len));
                match i % 5 {
                    0 | 3 => steps.push(Fsync(f)),
                    1 => steps.extend([Write(f.clone(), at, 6000, i as u64), Fsync(f)]),
                    2 => steps.push(Fdatasync(f)),
                    _ => steps.push(Write(f, at + 5000, 3000, i as u64)),
                }
            }
            steps
        },
    },
    Scenario {
        name: "exchange",
        before: || {
            let dirs = [Mkdir("d".into()), Mkdir("e".into())];
            files(4, 7000).into_iter().chain(dirs).collect()
        },
        during: || {
            let mut steps = Vec::new();
            for i in 0..6u64 {
                let (f, g) = (format!("f{}", i % 4), format!("f{}", (i + 1) % 4));
                steps.extend([Write(f.clone(), 0, 5000, i), Exchange(f.clone(), g.clone())]);
                if i % 2 == 0 {
                    steps.push(Fsync(f.clone()));
                }
                let away = format!("{}/x", if i % 2 == 0 { "d" } else { "e" });
                steps.extend([Rename(g.clone(), away.clone()), Create(g.clone()), Write(g.clone(), 0, 4000, i)]);
                steps.push(Fsync(if i % 3 == 0 { away } else { g }));
                if i % 3 == 2 {
                    steps.extend([Exchange("d".into(), "e".into()), Fsyncdir("d".into())]);
                }
            }
            steps
        },
    },
    Scenario {
        name: "renamed-before",
        before: || {
            let mut steps = vec![Mkdir("d".into())];
            steps.extend(files(6, 9000));
            steps.extend([Rename("f1".into(), "f0".into()), Rename("f2".into(), "d/f".into())]);
            // Its inode records the removed name.
            steps.extend([Link("f3".into(), "d/g".into()), Unlink("f3".into())]);
            steps.extend([Link("f4".into(), "d/h".into()), Unlink("d/h".into())]);
            steps
        },
        during: || {
            let mut steps = Vec::new();
            for (i, f) in ["f0", "d/f", "d/g", "f4", "f0", "d/g"].into_iter().enumerate() {
                let (f, at) = (f.to_string(), i as u64 * 3000);
                steps.extend([Write(f.clone(), at, 5000, at), Fsync(f.clone()), Fsync(f.clone())]);
                if i >= 2 {
                    let away = format!("d/m{i}");
                    steps.extend([
                        Rename(f.clone(), away.clone()),
                        Write(away.clone(), 0, 700, at),
                        Fsync(away.clone()),
                    ]);
                    steps.extend([Link(away.clone(), f.clone()), Unlink(away), Fsync(f.clone())]);
                    steps.extend([Write(f.clone(), at, 900, at + 1), Fsync(f)]);
                }
            }
            steps
        },
    },
    Scenario {
        name: "nameless",
        before: nothing,
        during: || {
            let mut steps = Vec::new();
            for i in 0..8usize {
                let f = format!("f{}", i % 5);
                if i >= 5 {
                    steps.push(Unlink(f.clone()));
                }
                steps.push(Appear(f.clone(), i * 1500, i as u64, i % 2 == 0));
                if i % 3 != 1 {
                    steps.push(Fsync(f));
                }
            }
            steps
        },
    },
    Scenario {
        name: "link-unlink",
        before: || files(6, 9000),
        during: || {
            let mut steps = Vec::new();
            for i in 0..6 {
                let (f, g) = (format!("f{i}"), format!("g{i}"));
                steps.push(Link(f.clone(), g.clone()));
                if i % 2 == 0 {
                    steps.push(Fsync(g.clone()));
                }
                steps.push(Unlink(f));
                if i % 3 == 0 {
                    steps.extend([Fsync(g.clone()), Unlink(g)]);
                }
            }
            steps.push(Sync);
            // The original name of a new file is gone when it is synced.
            for i in 0..4 {
                let (f, g) = (format!("new{i}"), format!("other{i}"));
                steps.extend([Create(f.clone()), Write(f.clone(), 0, 5000, i), Link(f.clone(), g.clone())]);
                steps.extend([Unlink(f), Fsync(g)]);
            }
            steps
        },
    },
    Scenario {
        name: "directories",
        before: nothing,
        during: || {
            let mut steps = Vec::new();
            for i in 0..6 {
                let (d, e) = (format!("d{i}"), format!("d{i}/e"));
                let f = format!("{e}/f");
                steps.extend([Mkdir(d.clone()), Mkdir(e.clone()), Create(f.clone()), Write(f.clone(), 0, 5000, i)]);
                if i % 2 == 0 {
                    steps.push(Fsync(f.clone()));
                } else {
                    steps.push(Fsyncdir(e.clone()));
                }
                if i % 3 == 2 {
                    steps.extend([Unlink(f), Rmdir(e)]);
                } else {
                    steps.push(Rename(e, format!("moved{i}")));
                }
            }
            steps
        },
    },
    Scenario {
        name: "attributes",
        before: || files(3, 3000),
        during: || {
            (0..12usize)
                .flat_map(|i| {
                    let f = format!("f{}", i % 3);
                    let mut steps = vec![Setxattr(f.clone(), 20 + i * 150)];
                    if i % 2 == 0 {
                        steps.push(Fsync(f));
                    }
                    steps
                })
                .collect()
        },
    },
    Scenario {
        name: "many-files",
        before: nothing,
        during: || {
            let mut steps = files(600, 100);
            steps.extend([Sync, Fsync("f7".into())]);
            steps.extend((0..300).map(|i| Unlink(format!("f{}", i * 2))));
            with_sync(&["f1", "f3"], steps)
        },
    },
    Scenario {
        name: "checkpoint",
        before: || files(4, 200_000),
        during: || {
            let mut steps = Vec::new();
            for i in 0..8u64 {
                let f = format!("f{}", i % 4);
                steps.extend([Write(f.clone(), i * 20_000, 30_000, i), Create(format!("new{i}")), Sync]);
                steps.extend([Unlink(format!("new{i}")), Truncate(f, 100_000 + i * 1000), Tick(70)]);
            }
            steps
        },
    },
    Scenario {
        name: "cleaning",
        before: || files(13, 1 << 20),
        during: || {
            let mut rng = Rng::new(5);
            (0..2500u64)
                .flat_map(|i| {
                    let f = format!("f{}", rng.index(13));
                    let mut steps = vec![Write(f.clone(), rng.below(256) * 4096, 4096, i)];
                    if i % 100 == 0 {
                        steps.push(Fsync(f));
                    }
                    if i % 700 == 699 {
                        steps.push(Sync);
                    }
                    steps
                })
                .collect()
        },
    },
    Scenario { name: "nudges", before: || files(1, 12 * 4096), during: || nudged(12, 40) },
    Scenario { name: "nudges-large", before: || files(1, 700 * 4096), during: || nudged(700, 40) },
    Scenario { name: "defragment", before: torn, during: || brought_together(Moving::Copy) },
    Scenario { name: "defragment-share", before: torn, during: || brought_together(Moving::Share) },
    Scenario { name: "cleaning-greedy", before: aged, during: || cleaned_by("greedy") },
    Scenario { name: "cleaning-cost-benefit", before: aged, during: || cleaned_by("cost-benefit") },
    Scenario { name: "cleaning-atgc", before: aged, during: || cleaned_by("atgc") },
    Scenario { name: "cleaning-fagc", before: aged, during: || cleaned_by("fagc") },
    Scenario { name: "cleaning-joule", before: aged, during: || cleaned_by("joule") },
];
