//! What do operations cost on this device, for a policy that weighs joules?
//!
//! Left out on purpose: how a policy weighs them (`victim::joule`), and the energy really used (`device::energy`).

use device::energy::profile::{DeviceSpec, DiskSpec, FlashSpec, Profile, Quantity};
use device::energy::{Energy, Nanos};
use victim::joule::Prices;

/// The prices of a device, including processor, memory and board (see `docs/energy-model.md`).
pub fn of(profile: &Profile) -> Prices {
    let host = profile.host.prices();
    let block = host.cpu_byte.of(4096) + host.dram_byte.of(4096);
    let wait = |time: Nanos| host.board.over(time);
    match &profile.device {
        DeviceSpec::Flash(flash) => of_flash(flash, host.cpu_request, block, wait),
        DeviceSpec::Disk(disk) => of_disk(disk, host.cpu_request, block, wait),
    }
}

fn mean(times: &[Quantity<Nanos>]) -> u64 {
    times.iter().map(|t| t.value.0).sum::<u64>() / (times.len() as u64).max(1)
}

/// Flash writes out of place: near and far blocks differ only in the request, which has its own price.
fn of_flash(d: &FlashSpec, cpu: Energy, block: Energy, wait: impl Fn(Nanos) -> Energy) -> Prices {
    let link = &d.link;
    let wait = |time| wait(time) + d.busy.as_ref().map_or(Energy::ZERO, |power| power.value.over(time));
    let read = link.read_energy.value.of(4096) + d.nand.read_energy.value.of(4096);
    let write = link.write_energy.value.of(4096) + d.nand.program_energy.value.of(4096);
    let nand = &d.nand;
    // All planes of all dies copy in parallel.
    let row_blocks = nand.page.value / 4096 * nand.planes.value * nand.dies.value * nand.channels.value;
    let row = mean(&nand.read) + mean(&nand.program);
    let request = link.write_request.as_ref().unwrap_or(&link.request).value;
    let write = (block + write + wait(link.write.value.of(4096))).0;
    Prices {
        read_block: (block + read + wait(link.read.value.of(4096))).0,
        write_block_sequential: write,
        write_block_random: write,
        request: (cpu + link.request_energy.value + wait(request)).0,
        // The rest of a page is padded, half of one on average, and the flush waits for its programming.
        flush: (cpu
            + d.flush_energy.value
            + nand.program_energy.value.of(nand.page.value / 2)
            + wait(Nanos(d.flush.value.0 + mean(&nand.program))))
        .0,
        copy_inside: (nand.read_energy.value.of(4096)
            + nand.program_energy.value.of(4096)
            + wait(Nanos(row / row_blocks.max(1))))
        .0,
        spare: (nand.spare.value * 1024.0) as u64,
        padding: nand.page.value / 2 / 4096,
    }
}

/// For a far block, the arm moves a third of its range and the platter turns half a revolution.
fn of_disk(d: &DiskSpec, cpu: Energy, block: Energy, wait: impl Fn(Nanos) -> Energy) -> Prices {
    let media = d.media_mean().of(4096);
    let half_turn = Nanos(30_000_000_000 / d.rpm.value.max(1));
    let seek = d.seek_average.value + d.write_settle.value;
    let far = d.seek_power.value.over(seek) + d.rotate_power.value.over(half_turn) + wait(seek + half_turn);
    let write = block + d.write_power.value.over(media) + wait(media);
    Prices {
        read_block: (block + d.read_power.value.over(media) + wait(media)).0,
        write_block_sequential: write.0,
        write_block_random: (write + far).0,
        request: (cpu + d.idle_power.value.over(d.request.value) + wait(d.request.value)).0,
        flush: (cpu + d.idle_power.value.over(half_turn) + wait(half_turn)).0,
        copy_inside: 0,
        spare: 0,
        padding: 0,
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_has_prices_and_the_default_is_the_first() {
        for (name, text) in device::energy::profile::SHIPPED {
            let prices = of(&Profile::parse(text, name).unwrap());
            assert!(prices.request > 0 && prices.read_block > 0 && prices.write_block_sequential > 0, "{name}");
            assert!(prices.write_block_random >= prices.write_block_sequential, "{name}");
            assert_eq!(prices.copy_inside > 0, prices.write_block_random == prices.write_block_sequential, "{name}");
        }
        let phone = of(&Profile::find("kirin9000-ufs31").unwrap());
        let rounded = |n: u64| (n + 500) / 1000 * 1000;
        let phone = Prices {
            read_block: rounded(phone.read_block),
            write_block_sequential: rounded(phone.write_block_sequential),
            write_block_random: rounded(phone.write_block_random),
            request: rounded(phone.request),
            flush: rounded(phone.flush),
            copy_inside: rounded(phone.copy_inside),
            spare: phone.spare,
            padding: phone.padding,
        };
        assert_eq!(phone, Prices::default());
    }
}
