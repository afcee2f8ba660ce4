//! What goes on when the power goes.

use device::Rng;

/// One thing done. Paths have `/` between names.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // the fields say it
pub enum Step {
    Create(String),
    Mkdir(String),
    /// At a byte, so many bytes of this stream.
    Write(String, u64, usize, u64),
    Truncate(String, u64),
    Rename(String, String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Setxattr(String, usize),
    Fsync(String),
    Fdatasync(String),
    Fsyncdir(String),
    Sync,
    Tick,
}

/// A scenario: what is there, durable, before, and what is done while the power may go.
pub struct Scenario {
    /// Its name, as it is printed.
    pub name: &'static str,
    /// What is made before.
    pub before: fn() -> Vec<Step>,
    /// What is done.
    pub during: fn() -> Vec<Step>,
}

use Step::*;

fn nothing() -> Vec<Step> {
    Vec::new()
}

fn files(count: usize, len: usize) -> Vec<Step> {
    let file = |i: usize| [Create(format!("f{i}")), Write(format!("f{i}"), 0, len, i as u64)];
    (0..count).flat_map(file).collect()
}

fn with_sync(names: &[&str], mut steps: Vec<Step>) -> Vec<Step> {
    steps.extend(names.iter().map(|n| Fsync((*n).into())));
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
                steps.extend([Unlink(format!("new{i}")), Truncate(f, 100_000 + i * 1000), Tick]);
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
];
