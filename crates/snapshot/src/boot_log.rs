//! What the log of a kernel's start says of the kernel's own image in memory.

use std::ops::Range;

/// Where a kernel for x86 lies unless it is moved (`CONFIG_PHYSICAL_START`, arch/x86/Kconfig), in KiB.
const PHYSICAL_START_KIB: u64 = 16 << 10;

/// KiB of a page.
const PAGE_KIB: u64 = 4;

/// The frames that a kernel's code and data take for good, if its log (`dmesg`) tells how large they are and the kernel
/// was not moved to a random place.
///
/// The line is that of `mem_init_print_info` (mm/page_alloc.c, since 3.11; before, `mem_init` of arch/x86/mm/init_64.c,
/// which leaves the empty data out). Departs: the image is taken to be in one piece, without what is freed of it, its
/// `init` part and what aligns its sections. Visible as: up to 4 MiB of it lie lower than they do.
pub(crate) fn kernel_image(log: &str) -> Option<Range<u64>> {
    // It can be moved since 3.14 (arch/x86/boot/compressed/aslr.c).
    if !log.contains("nokaslr") && !is_before_3_14(log) {
        return None;
    }
    let line =
        log.lines().find(|line| line.contains("Memory: ") && line.contains(" kernel code"))?;
    let (_, parts) = line.split_once('(')?;
    let parts = parts.split(&[',', ')'][..]).map_while(|part| part.trim().split_once(' '));
    let kept =
        parts.filter(|(_, of)| ["kernel code", "rwdata", "rodata", "bss", "data"].contains(of));
    let kib = kept.filter_map(|(size, _)| size.trim_end_matches(['K', 'k']).parse::<u64>().ok());
    let kib = kib.fold(0, u64::saturating_add);
    let start = PHYSICAL_START_KIB / PAGE_KIB;
    Some(start..start.saturating_add(kib.div_ceil(PAGE_KIB)))
}

fn is_before_3_14(log: &str) -> bool {
    let release = || {
        let (_, version) = log.split_once("Linux version ")?;
        let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    };
    release().is_some_and(|release| release < (3, 14))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_code_and_data_from_16_mib_on() {
        let log = |version: &str, line: &str, end: &str| {
            format!("Linux version {version} (b@h)\nCommand line: quiet{end}\n{line}\n")
        };
        let new = "Memory: 1015912K/1048020K available (6146K kernel code, 465K rwdata, 768K rodata, 784K init, 752K bss, \
            32108K reserved, 0K cma-reserved)";
        let pages = (6146_u64 + 465 + 768 + 752).div_ceil(4);
        let image = |log: String| kernel_image(&log);
        assert_eq!(image(log("4.20.0", new, " nokaslr")), Some(4096..4096 + pages));
        assert_eq!(image(log("4.20.0", new, "")), None, "it may lie anywhere");
        let old = "[    0.000000] Memory: 1024860k/1048412k available (2171k kernel code, 452k absent, 23100k reserved, 830k \
            data, 400k init)";
        assert_eq!(image(log("3.4.4", old, "")), Some(4096..4096 + 751));
        assert_eq!(image(log("3.4.4", "no such line", "")), None);
    }
}
