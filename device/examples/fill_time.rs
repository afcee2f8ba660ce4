use device::energy::profile::Profile; use device::energy::Nanos; use device::Lba;
fn main(){ for name in ["kirin9000-ufs31","samsung-850evo","samsung-970evoplus","micron-2550","galaxy-nexus-emmc"] { for tb in [1u64,2] {
 let p=Profile::find(name).unwrap(); let blocks=tb*1_000_000_000_000/4096; let t=std::time::Instant::now();
 let mut m=device::model::build(&p,blocks).unwrap(); m.fill(Nanos(0),&[(Lba(0),blocks)]);
 let s=std::fs::read_to_string("/proc/self/status").unwrap(); let rss=s.lines().find(|l|l.starts_with("VmRSS")).unwrap().to_owned();
 println!("{name} {tb} TB: {:?} {rss}", t.elapsed()); } } }
