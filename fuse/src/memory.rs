//! How much memory may a serving process use?

/// Bytes of the machine's memory, or of its container's limit (`memory.max` of the control group).
pub fn of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    let whole = (info.totalram as u64).saturating_mul(u64::from(info.mem_unit));
    let share = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    share.and_then(|share| share.trim().parse().ok()).map_or(whole, |share: u64| share.min(whole))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_machine_that_runs_this_has_some_megabytes_and_no_exabyte() {
        assert!((1 << 24..1 << 60).contains(&super::of_machine()));
    }
}
