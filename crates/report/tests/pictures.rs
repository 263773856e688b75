//! Whole pictures of a small made-up machine, in every form.

use highorder_mm::types::{Migratetype, Order, Pfn, ZoneKind};
use highorder_report::{
    Caption, CellGrid, Colour, Holders, MapZone, MemoryMap, TerminalOptions, UseClass, picture,
    png, render, render_difference, render_side_by_side, render_terminal,
};
use highorder_snapshot::FrameUse;

const PAGEBLOCK: usize = 512;

/// Two zones of one node, with a hole in the second, and every kind of use.
fn machine(title: &str) -> MemoryMap {
    use FrameUse::*;
    let half = |a: FrameUse, b: FrameUse| [vec![a; 256], vec![b; 256]].concat();
    let pinned = |by: FrameUse, rest: FrameUse| [vec![by], vec![rest; PAGEBLOCK - 1]].concat();
    let blocks = [
        half(Reserved, Free(8)),
        vec![Free(9); PAGEBLOCK],
        vec![Free(10); PAGEBLOCK],
        vec![Free(10); PAGEBLOCK],
        half(Slab, Kernel),
        pinned(PageTable, Anon),
        pinned(Slab, Huge),
        half(SlabReclaimable, Free(3)),
        half(File, Free(0)),
        vec![Hugetlb; PAGEBLOCK],
        half(Anon, PerCpu),
        half(Anon, KernelOrPerCpu),
        vec![Unknown; PAGEBLOCK],
        half(FileMapped, Buffers),
        [vec![KernelStack; 4], vec![NetworkBuffer; 8], vec![Pinned; 100], vec![Anon; 400]].concat(),
    ];
    let mut uses = blocks.concat();
    uses.extend(vec![Hole; 64 * PAGEBLOCK]);
    uses.extend(vec![Huge; 4 * PAGEBLOCK]);
    let nr_pageblocks = (uses.len() / PAGEBLOCK) as u32;
    let migratetype = |i: u32| match i {
        4 => Migratetype::Unmovable,
        7 => Migratetype::Reclaimable,
        _ => Migratetype::Movable,
    };
    let pageblocks = (0..nr_pageblocks).map(|i| (Pfn(i * 512), migratetype(i))).collect();
    let zone = |kind, start: u64, end: u64, holes: u64, reserved: u64| MapZone {
        node: 0,
        kind,
        start: Pfn(start as u32),
        spanned: end - start,
        present: end - start - holes,
        managed: end - start - holes - reserved,
        per_cpu_somewhere: 0,
    };
    let end = uses.len() as u64;
    let zones = vec![
        zone(ZoneKind::Dma, 1, 4 * 512, 0, 255),
        zone(ZoneKind::Dma32, 4 * 512, end, 64 * 512, 0),
    ];
    let mut holders = Holders::default();
    holders.push(Pfn(4 * 512), 256, "slab kmalloc-64");
    holders.push(Pfn(6 * 512), 1, "slab inode_cache");
    holders.push(Pfn(7 * 512), 256, "slab dentry");
    let map = MemoryMap::new(title, Order(9), zones, uses, pageblocks).with_holders(holders);
    map.with_caption(Caption {
        lines: vec!["a made-up machine <for tests>".to_owned()],
        command: Some(format!("highorder map '{title}'")),
    })
}

/// The same machine after its page cache was dropped and a huge page freed.
fn later() -> MemoryMap {
    let mut map = machine("later");
    for frame in &mut map.uses {
        if *frame == FrameUse::File {
            *frame = FrameUse::Free(0);
        }
    }
    let last = map.uses.len() - PAGEBLOCK;
    map.uses[last..].fill(FrameUse::Free(9));
    map
}

#[track_caller]
fn assert_draws(svg: &str) {
    let file = png(svg, 1.0).expect("the SVG can be drawn");
    let mut reader = png::Decoder::new(std::io::Cursor::new(&file)).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("an image");
    let head = svg.lines().next().unwrap_or_default();
    let size = format!(r#"width="{}" height="{}""#, info.width, info.height);
    assert!(head.contains(&size), "{size} is not in {head}");
    let inked = pixels.chunks(3).filter(|p| *p != [255, 255, 255]).count();
    assert!(inked * 50 > pixels.len() / 3, "only {inked} pixels are not white");
    assert_eq!(file, png(svg, 1.0).expect("again"), "the same SVG gives the same bytes");
}

#[test]
fn plain_text_at_80_columns() {
    let text = render_terminal(&machine("small"), TerminalOptions::default());
    assert!(text.is_ascii(), "no colour means plain ASCII");
    assert!(text.lines().all(|l| l.chars().count() <= 80));
    insta::assert_snapshot!(text);
}

#[test]
fn a_hole_is_as_large_at_each_width() {
    let mut map = machine("with a large hole");
    // 1 GiB and a pageblock without memory, behind them a pageblock with some.
    let hole = 513 * PAGEBLOCK as u64;
    map.uses.extend(vec![FrameUse::Hole; hole as usize]);
    map.uses.extend(vec![FrameUse::Anon; PAGEBLOCK]);
    map.zones[1].spanned += hole + PAGEBLOCK as u64;
    map.zones[1].present += PAGEBLOCK as u64;
    map.zones[1].managed += PAGEBLOCK as u64;
    for width in [72, 80, 100, 200] {
        let options = TerminalOptions { width, ..TerminalOptions::default() };
        let text = render_terminal(&map, options);
        let holes = || text.lines().filter(|line| line.contains("no memory: "));
        assert!(holes().any(|line| line.contains("no memory: 1 GiB")), "{width}: {text}");
        let is_known = |line: &str| line.contains(": 1 GiB") || line.contains(": 128 MiB");
        assert!(holes().all(is_known), "{width}: {text}");
    }
}

#[test]
fn plain_text_at_160_columns() {
    let options = TerminalOptions { width: 160, ..TerminalOptions::default() };
    let text = render_terminal(&machine("small"), options);
    assert!(text.lines().all(|l| l.chars().count() <= 160));
    insta::assert_snapshot!(text);
}

#[test]
fn coloured_text_is_the_same_but_for_the_escapes_of_the_palette() {
    let text = |colour| {
        let options = TerminalOptions { colour, ..TerminalOptions::default() };
        render_terminal(&machine("small"), options)
    };
    let stripped = |text: String| {
        let mut parts = text.split('\x1b');
        let first = parts.next().unwrap_or_default().to_owned();
        let rest = parts.map(|p| p.split_once('m').expect("an escape ends in m").1);
        first + &rest.collect::<String>()
    };
    let (indexed, full) = (text(Colour::Indexed), text(Colour::True));
    assert!(full.contains(";2;") && indexed.contains(";5;") && !indexed.contains(";2;"));
    let plain = stripped(full);
    assert_eq!(stripped(indexed), plain);
    assert!(plain.lines().all(|l| l.chars().count() <= 80));
}

#[test]
fn any_width_is_kept() {
    for width in [0, 72, 79, 100, 119, 120, 121, 200, 300] {
        for colour in [Colour::Never, Colour::True] {
            let options = TerminalOptions { width, map_lines: 3, colour };
            let text = render_terminal(&machine("a title of some length"), options);
            if colour == Colour::Never {
                let longest = text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
                assert!(longest <= width.max(72), "{longest} columns of {width}");
            }
        }
    }
}

#[test]
fn a_small_map_as_svg() {
    let svg = render(&machine("small"));
    insta::assert_snapshot!(svg);
    assert_draws(&svg);
}

#[test]
fn two_maps_side_by_side_as_svg() {
    let svg = render_side_by_side(&[machine("now"), later()]);
    insta::assert_snapshot!(svg);
    assert_draws(&svg);
}

#[test]
fn a_difference_as_svg() {
    let svg = render_difference(&machine("now"), &later());
    insta::assert_snapshot!(svg);
    assert_draws(&svg);
}

#[test]
fn equal_maps_give_equal_bytes() {
    assert_eq!(render(&machine("small")), render(&machine("small")));
}

#[test]
fn a_machine_without_zones_is_drawn_empty() {
    let map = MemoryMap::new("empty", Order(9), Vec::new(), Vec::new(), Vec::new());
    assert!(png(&render(&map), 1.0).is_ok());
    assert!(render_terminal(&map, TerminalOptions::default()).starts_with("empty\n"));
}

#[test]
fn a_machine_of_64_gib_has_a_cell_for_each_pageblock_and_a_small_file() {
    let frames = 64u64 << 18;
    let uses = (0..frames).map(|i| match i / 512 % 7 {
        0 => FrameUse::Free(10),
        1 if i % 3 == 0 => FrameUse::Slab,
        2 => FrameUse::File,
        _ => FrameUse::Anon,
    });
    let zone = MapZone {
        node: 0,
        kind: ZoneKind::Normal,
        start: Pfn(0),
        spanned: frames,
        present: frames,
        managed: frames,
        per_cpu_somewhere: 0,
    };
    let map = MemoryMap::new("large", Order(9), vec![zone], uses.collect(), Vec::new());
    let grid = CellGrid::of_map(&map, picture::CELLS_MAX);
    assert_eq!(grid.len(), 32768);
    assert_eq!(grid.zones[0].cells[1].counts[UseClass::Slab.index()], 171);
    let svg = render(&map);
    assert!(svg.len() < 2_000_000, "{} bytes", svg.len());
}
