use device::energy::profile::Profile; use device::energy::Nanos; use device::Lba;
fn cpu()->f64{ let s=std::fs::read_to_string("/proc/self/stat").unwrap(); let f:Vec<&str>=s.rsplit(')').next().unwrap().split_whitespace().collect(); (f[11].parse::<f64>().unwrap()+f[12].parse::<f64>().unwrap())/100.0 }
fn main(){ for name in ["kirin9000-ufs31","samsung-850evo","samsung-970evoplus","micron-2550","galaxy-nexus-emmc"] { for tb in [1u64,2] {
 let p=Profile::find(name).unwrap(); let blocks=tb*1_000_000_000_000/4096; let t=cpu();
 let mut m=device::model::build(&p,blocks).unwrap(); m.fill(Nanos(0),&[(Lba(0),blocks)]);
 let s=std::fs::read_to_string("/proc/self/status").unwrap(); let rss=s.lines().find(|l|l.starts_with("VmRSS")).unwrap().to_owned();
 println!("{name} {tb} TB: {:.2} s of CPU, {rss}", cpu()-t); } } }
