//! Pictures of memory.
//!
//! [`map`] holds what lies in every frame of a machine and counts it; [`terminal`] and [`picture`]
//! draw it, the first in coloured text, the second as SVG. [`chart`] draws curves, bars and scatters
//! on the scales of [`axis`] and [`plane`], [`lives`] what became of pageblocks, [`scanners`] where compaction is,
//! [`blocked`] which blocks can be had, [`dots`] and [`heat`] what tables say. [`raster`] turns any of the SVGs into a PNG with an embedded font.
//!
//! Nothing here reads a file, a clock or the environment: equal arguments give equal bytes.

pub mod axis;
pub mod blocked;
pub mod cells;
pub mod chart;
pub mod dots;
pub mod heat;
pub mod lives;
pub mod map;
pub mod palette;
pub mod picture;
pub mod plane;
pub mod raster;
pub mod scanners;
mod svg;
pub mod terminal;

pub use axis::{Axis, Zero};
pub use blocked::{BlockPlace, BlockedMap};
pub use cells::{Cell, CellGrid};
pub use chart::{BarChart, LineChart, Panel, ScatterChart, Series};
pub use dots::{DotPanel, DotPlot, DotRow};
pub use heat::{HeatColumn, HeatPanel, HeatRow, HeatTable};
pub use lives::{BLOCK_LIVES, BlockLives, ZoneLives};
pub use map::{Caption, Holders, MapZone, MemoryMap, Pinner, Statistics};
pub use palette::{DifferenceClass, Mobility, Rgb, Swatch, UseClass};
pub use picture::{render, render_coarse, render_difference, render_side_by_side};
pub use raster::{RasterError, png};
pub use scanners::ScannerChart;
pub use terminal::{Colour, TerminalOptions, render_cells, render_terminal};
