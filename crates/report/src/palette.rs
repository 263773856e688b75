//! What the colours mean.
//!
//! Hue says who holds the memory: greens are free, blues and teals can be moved, amber can be reclaimed,
//! reds and brown stay where they are, violet would move if it were not held, greys are not the
//! allocator's, pale lilac waits on a CPU's list, sand may do so or be the kernel's. Lightness says how good it is: free memory is light, and
//! lighter the larger its blocks. Magenta is kept for mixed pageblocks alone.
//!
//! Neighbouring families differ in lightness as well as in hue, so that the map still reads without
//! red or green receptors; a test simulates both and measures the distances.

use highorder_mm::types::{Migratetype, Order};
use highorder_snapshot::FrameUse;
use std::fmt;

/// A colour in sRGB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rgb(pub u8, pub u8, pub u8);

impl Rgb {
    /// The colour `share` of the way from `self` to `other`; `share` is held within 0 and 1.
    #[must_use]
    pub fn mix(self, other: Self, share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        let one =
            |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share).round() as u8;
        Self(one(self.0, other.0), one(self.1, other.1), one(self.2, other.2))
    }

    /// The nearest of the 256 colours that terminals without true colour have: the 6x6x6 cube
    /// (16..=231) or the grey ramp (232..=255).
    #[must_use]
    pub fn ansi256(self) -> u8 {
        const LEVELS: [i32; 6] = [0, 95, 135, 175, 215, 255];
        let channels = [i32::from(self.0), i32::from(self.1), i32::from(self.2)];
        let distance = |c: [i32; 3]| -> i32 {
            c.iter().zip(channels).map(|(a, b)| (a - b) * (a - b)).sum::<i32>()
        };
        let nearest = channels.map(|v| (0..6).min_by_key(|&i| (LEVELS[i] - v).abs()).unwrap_or(0));
        let cube = distance(nearest.map(|i| LEVELS[i]));
        let grey = (0..24).min_by_key(|&i| distance([8 + 10 * i; 3])).unwrap_or(0);
        if distance([8 + 10 * grey; 3]) < cube {
            232 + grey as u8
        } else {
            (16 + 36 * nearest[0] + 6 * nearest[1] + nearest[2]) as u8
        }
    }
}

impl Rgb {
    /// How far apart two colours are to whoever tells them apart worst: usual eyes, or those without red or
    /// without green receptors. The unit is CIE 1976's difference in L*a*b*: 2.3 is just noticeable, and
    /// areas side by side are told apart well from about 10.
    #[must_use]
    pub fn least_difference(self, other: Self) -> f64 {
        let differences =
            VISIONS.map(|(_, matrix)| difference(seen(self, matrix), seen(other, matrix)));
        differences.into_iter().fold(f64::INFINITY, f64::min)
    }
}

type Matrix = [[f64; 3]; 3];

/// Usual eyes, and the dichromat matrices of Machado, Oliveira and Fernandes (2009) at full severity.
const VISIONS: [(&str, Matrix); 3] = [
    ("usual", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    (
        "protanope",
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    ),
    (
        "deuteranope",
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    ),
];

/// A colour as such eyes see it, in CIE L*a*b*.
fn seen(Rgb(r, g, b): Rgb, vision: Matrix) -> [f64; 3] {
    lab(apply(vision, [r, g, b].map(linear)))
}

fn difference(p: [f64; 3], q: [f64; 3]) -> f64 {
    p.iter().zip(q).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt()
}

/// Linear light in 0..=1.
fn linear(c: u8) -> f64 {
    let c = f64::from(c) / 255.0;
    if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
}

fn apply(m: Matrix, v: [f64; 3]) -> [f64; 3] {
    m.map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum())
}

/// CIE L*a*b* under D65.
fn lab(rgb: [f64; 3]) -> [f64; 3] {
    let xyz = apply(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]],
        rgb.map(|c| c.clamp(0.0, 1.0)),
    );
    let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
    let [x, y, z] = [f(xyz[0] / 0.9505), f(xyz[1]), f(xyz[2] / 1.089)];
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

impl fmt::Display for Rgb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// One entry of a legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swatch {
    /// What the legend prints.
    pub label: &'static str,
    /// Its colour.
    pub colour: Rgb,
    /// Its letter where there is no colour.
    pub letter: char,
}

/// The mark of pageblocks that hold allocations of more than one mobility.
pub const MIXED: Swatch =
    Swatch { label: "mixed pageblock", colour: Rgb(0xee, 0x1a, 0xa6), letter: 'X' };

/// What the map tells apart: [`FrameUse`] with the free orders put into three ranges.
///
/// The order of the variants is the order in which a cell stacks them, from the bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum UseClass {
    /// Memory the allocator does not manage.
    Reserved,
    /// User and file pages that a device or a system call holds in place.
    Pinned,
    /// Kernel memory of another use.
    Kernel,
    /// Stacks of threads in the kernel.
    KernelStack,
    /// Packets.
    NetworkBuffer,
    /// Page tables.
    PageTable,
    /// Unreclaimable slab.
    Slab,
    /// Reclaimable slab.
    SlabReclaimable,
    /// hugetlb pages.
    Hugetlb,
    /// Transparent huge pages.
    Huge,
    /// Page cache of block devices: metadata of file systems.
    Buffers,
    /// Page cache that is mapped.
    FileMapped,
    /// Page cache that nobody maps.
    File,
    /// Anonymous base pages.
    Anon,
    /// Use not known.
    Unknown,
    /// Without flags: a kernel page, or free and held on a CPU's list.
    KernelOrPerCpu,
    /// Free, held on a CPU's list.
    PerCpu,
    /// Free in blocks of orders that are not costly (0 to 3).
    FreeSmall,
    /// Free in blocks of costly orders below a pageblock's.
    FreeMiddle,
    /// Free in blocks of a whole pageblock or more.
    FreeHuge,
    /// No memory here.
    Hole,
}

/// Whether the pages of a use can change their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mobility {
    /// Migration can move it.
    Movable,
    /// A shrinker can free it.
    Reclaimable,
    /// It stays.
    Unmovable,
}

impl Mobility {
    /// What becomes of such pages when their place is wanted.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Movable => "movable",
            Self::Reclaimable => "reclaimable",
            Self::Unmovable => "pinned",
        }
    }
}

impl UseClass {
    /// Number of classes.
    pub const COUNT: usize = 21;

    /// Every class, in stacking order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Reserved,
        Self::Pinned,
        Self::Kernel,
        Self::KernelStack,
        Self::NetworkBuffer,
        Self::PageTable,
        Self::Slab,
        Self::SlabReclaimable,
        Self::Hugetlb,
        Self::Huge,
        Self::Buffers,
        Self::FileMapped,
        Self::File,
        Self::Anon,
        Self::Unknown,
        Self::KernelOrPerCpu,
        Self::PerCpu,
        Self::FreeSmall,
        Self::FreeMiddle,
        Self::FreeHuge,
        Self::Hole,
    ];

    /// The class of a frame's use on a machine with pageblocks of `pageblock_order`.
    #[must_use]
    pub fn of(frame: FrameUse, pageblock_order: Order) -> Self {
        match frame {
            FrameUse::Hole => Self::Hole,
            FrameUse::Reserved => Self::Reserved,
            FrameUse::Free(order) if order >= pageblock_order.0 => Self::FreeHuge,
            FrameUse::Free(order) if order > highorder_mm::types::COSTLY_ORDER.0 => {
                Self::FreeMiddle
            }
            FrameUse::Free(_) => Self::FreeSmall,
            FrameUse::PerCpu => Self::PerCpu,
            FrameUse::Anon => Self::Anon,
            FrameUse::File => Self::File,
            FrameUse::FileMapped => Self::FileMapped,
            FrameUse::Buffers => Self::Buffers,
            FrameUse::Huge => Self::Huge,
            FrameUse::Hugetlb => Self::Hugetlb,
            FrameUse::SlabReclaimable => Self::SlabReclaimable,
            FrameUse::Slab => Self::Slab,
            FrameUse::PageTable => Self::PageTable,
            FrameUse::KernelStack => Self::KernelStack,
            FrameUse::NetworkBuffer => Self::NetworkBuffer,
            FrameUse::Pinned => Self::Pinned,
            FrameUse::Kernel => Self::Kernel,
            FrameUse::KernelOrPerCpu => Self::KernelOrPerCpu,
            FrameUse::Unknown => Self::Unknown,
        }
    }

    /// Index into a per-class table.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The class if nobody mapped it: who maps a file's page does not change what it is.
    const fn unmapped(self) -> Self {
        match self {
            Self::FileMapped => Self::File,
            class => class,
        }
    }

    /// Whether the page allocator could hand it out: in a free block or on a CPU's list.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Self::PerCpu | Self::FreeSmall | Self::FreeMiddle | Self::FreeHuge)
    }

    /// The mobility of allocated memory; `None` for what is free, reserved, unknown or absent.
    #[must_use]
    pub const fn mobility(self) -> Option<Mobility> {
        match self {
            Self::Anon
            | Self::File
            | Self::FileMapped
            | Self::Buffers
            | Self::Huge
            | Self::Hugetlb => Some(Mobility::Movable),
            Self::SlabReclaimable => Some(Mobility::Reclaimable),
            Self::Slab
            | Self::PageTable
            | Self::NetworkBuffer
            | Self::KernelStack
            | Self::Kernel
            | Self::Pinned => Some(Mobility::Unmovable),
            _ => None,
        }
    }

    /// Its name for programs.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Pinned => "pinned",
            Self::Kernel => "kernel",
            Self::KernelStack => "kernel_stack",
            Self::NetworkBuffer => "network_buffer",
            Self::PageTable => "page_table",
            Self::Slab => "slab_unreclaimable",
            Self::SlabReclaimable => "slab_reclaimable",
            Self::Hugetlb => "hugetlb",
            Self::Huge => "thp",
            Self::Buffers => "buffers",
            Self::FileMapped => "file_mapped",
            Self::File => "file",
            Self::Anon => "anon",
            Self::Unknown => "unknown",
            Self::KernelOrPerCpu => "unknown_kernel_or_per_cpu",
            Self::PerCpu => "free_per_cpu",
            Self::FreeSmall => "free_small",
            Self::FreeMiddle => "free_middle",
            Self::FreeHuge => "free_huge",
            Self::Hole => "hole",
        }
    }

    /// Its entry in the legend.
    #[must_use]
    pub const fn swatch(self) -> Swatch {
        let (label, colour, letter) = match self {
            Self::Reserved => ("reserved", Rgb(0x9d, 0xa3, 0xab), '='),
            Self::Pinned => ("pinned user pages", Rgb(0x61, 0x26, 0xb8), 'I'),
            Self::Kernel => ("kernel, other", Rgb(0x6e, 0x0f, 0x24), 'K'),
            Self::KernelStack => ("kernel stacks", Rgb(0x9c, 0x2f, 0x3c), 'Z'),
            Self::NetworkBuffer => ("network buffers", Rgb(0x8a, 0x4a, 0x0c), 'N'),
            Self::PageTable => ("page tables", Rgb(0xe4, 0x6d, 0x64), 'P'),
            Self::Slab => ("slab, unreclaimable", Rgb(0xcc, 0x3d, 0x2c), 'S'),
            Self::SlabReclaimable => ("slab, reclaimable", Rgb(0xf2, 0xa8, 0x1f), 'R'),
            Self::Hugetlb => ("hugetlb", Rgb(0x14, 0x24, 0x5a), 'T'),
            Self::Huge => ("huge (THP)", Rgb(0x1b, 0x4b, 0x9c), 'H'),
            Self::Buffers => ("buffers", Rgb(0x73, 0x7d, 0xe5), 'B'),
            Self::FileMapped => ("page cache, mapped", Rgb(0x0b, 0x53, 0x66), 'M'),
            Self::File => ("page cache", Rgb(0x0f, 0x85, 0x7a), 'F'),
            Self::Anon => ("anonymous", Rgb(0x6f, 0xb1, 0xe6), 'A'),
            Self::Unknown => ("unknown", Rgb(0xd6, 0xd6, 0xd6), 'U'),
            Self::KernelOrPerCpu => ("unknown, no flags", Rgb(0xc0, 0xae, 0x9c), 'Q'),
            Self::PerCpu => ("free, per-CPU", Rgb(0xdc, 0xd0, 0xf0), 'c'),
            Self::FreeSmall => ("free, order 0-3", Rgb(0x9f, 0xc2, 0x7f), 'o'),
            Self::FreeMiddle => ("free, order 4-8", Rgb(0xc6, 0xe3, 0xb2), ':'),
            Self::FreeHuge => ("free, order 9+", Rgb(0xe4, 0xf5, 0xdc), '.'),
            Self::Hole => ("no memory", Rgb(0xff, 0xff, 0xff), ' '),
        };
        Swatch { label, colour, letter }
    }
}

/// What a comparison of two maps tells apart, frame by frame; stacked in this order from the bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DifferenceClass {
    /// Allocated in both, to different uses.
    OtherUse,
    /// Free in the first, allocated in the second.
    Taken,
    /// Allocated in the first, free in the second.
    Released,
    /// Free in both, in blocks of another range of orders.
    OtherFree,
    /// The same class in both, whether or not a file's page is mapped.
    Same,
    /// No memory in either.
    Hole,
}

impl DifferenceClass {
    /// Every class, in stacking order.
    pub const ALL: [Self; 6] =
        [Self::OtherUse, Self::Taken, Self::Released, Self::OtherFree, Self::Same, Self::Hole];

    /// How a frame differs.
    #[must_use]
    pub fn of(first: UseClass, second: UseClass) -> Self {
        match (first.is_free(), second.is_free()) {
            _ if first == UseClass::Hole && second == UseClass::Hole => Self::Hole,
            _ if first.unmapped() == second.unmapped() => Self::Same,
            (true, true) => Self::OtherFree,
            (true, false) => Self::Taken,
            (false, true) => Self::Released,
            (false, false) => Self::OtherUse,
        }
    }

    /// Its entry in the legend.
    #[must_use]
    pub const fn swatch(self) -> Swatch {
        let (label, colour, letter) = match self {
            Self::OtherUse => ("allocated in both, another use", Rgb(0x8b, 0x3a, 0x9c), '#'),
            Self::Taken => {
                ("free in the first, allocated in the second", Rgb(0x1f, 0x6f, 0xc0), '+')
            }
            Self::Released => {
                ("allocated in the first, free in the second", Rgb(0xee, 0x8a, 0x1d), '-')
            }
            Self::OtherFree => ("free in both, blocks of another size", Rgb(0xf1, 0xe2, 0x9b), '~'),
            Self::Same => ("same in both", Rgb(0xe6, 0xe9, 0xec), '.'),
            Self::Hole => ("no memory", Rgb(0xff, 0xff, 0xff), ' '),
        };
        Swatch { label, colour, letter }
    }
}

/// The colour of a pageblock's type, in the family of the memory it is meant for.
#[must_use]
pub const fn migratetype_colour(migratetype: Migratetype) -> Rgb {
    match migratetype {
        Migratetype::Unmovable => Rgb(0xcc, 0x3d, 0x2c),
        Migratetype::Movable => Rgb(0x2e, 0x86, 0xd1),
        Migratetype::Reclaimable => Rgb(0xf2, 0xa8, 0x1f),
        Migratetype::HighAtomic => Rgb(0x6a, 0x4c, 0x93),
        Migratetype::Cma => Rgb(0x0f, 0x85, 0x7a),
        Migratetype::Isolate => Rgb(0x9d, 0xa3, 0xab),
        Migratetype::Reserve => Rgb(0x4b, 0x37, 0x1c),
    }
}

/// Colours for the series of a chart, in the order of use.
pub const SERIES: [Rgb; 6] = [
    Rgb(0x1f, 0x55, 0xa8),
    Rgb(0xe0, 0x7b, 0x12),
    Rgb(0x1c, 0x93, 0x93),
    Rgb(0xb0, 0x2a, 0x5b),
    Rgb(0x6f, 0xb1, 0xe6),
    Rgb(0x6b, 0x6f, 0x76),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_colours_stays_apart_for_eyes_without_red_or_green() {
        let mut colours: Vec<Swatch> = UseClass::ALL
            .into_iter()
            .filter(|&c| c != UseClass::Hole)
            .map(UseClass::swatch)
            .collect();
        colours.push(MIXED);
        let mut close = Vec::new();
        for (vision, matrix) in VISIONS {
            for (i, a) in colours.iter().enumerate() {
                for b in &colours[i + 1..] {
                    let [p, q] = [a, b].map(|s| seen(s.colour, matrix));
                    let distance = difference(p, q);
                    // 2.3 is just noticeable; areas side by side are told apart well from about 10.
                    if distance < 10.0 {
                        close.push(format!("{vision}: {} / {}: {distance:.1}", a.label, b.label));
                    }
                }
            }
        }
        assert!(close.is_empty(), "too close:\n{}", close.join("\n"));
    }

    #[test]
    fn larger_free_blocks_are_lighter() {
        let lightness = |class: UseClass| seen(class.swatch().colour, VISIONS[0].1)[0];
        assert!(lightness(UseClass::FreeHuge) > lightness(UseClass::FreeMiddle) + 5.0);
        assert!(lightness(UseClass::FreeMiddle) > lightness(UseClass::FreeSmall) + 5.0);
        let free = lightness(UseClass::FreeSmall);
        for class in UseClass::ALL.into_iter().filter(|c| c.mobility().is_some()) {
            assert!(lightness(class) < free, "{class:?} is lighter than free memory");
        }
    }

    #[test]
    fn letters_are_told_apart() {
        let mut letters: Vec<char> = UseClass::ALL.map(|c| c.swatch().letter).to_vec();
        letters.push(MIXED.letter);
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), UseClass::COUNT + 1);
    }

    #[test]
    fn names_for_programs_are_told_apart() {
        let mut keys: Vec<&str> = UseClass::ALL.map(UseClass::key).to_vec();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), UseClass::COUNT);
    }

    #[test]
    fn the_256_colour_fallback_finds_exact_colours() {
        assert_eq!(Rgb(0, 0, 0).ansi256(), 16);
        assert_eq!(Rgb(255, 255, 255).ansi256(), 231);
        assert_eq!(Rgb(95, 135, 175).ansi256(), 16 + 36 + 12 + 3);
        assert_eq!(Rgb(8, 8, 8).ansi256(), 232);
    }

    #[test]
    fn classes_are_listed_in_the_order_of_their_numbers() {
        for (i, class) in UseClass::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), i);
        }
        for (i, class) in DifferenceClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, i);
        }
    }
}
