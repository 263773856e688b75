//! PNG from SVG, the same bytes on every machine.
//!
//! The text is set in DejaVu Sans and DejaVu Sans Mono, which are compiled in (their Bitstream Vera
//! licence allows embedding); fonts of the system are never looked at.

use resvg::{tiny_skia, usvg};

/// Why a picture could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RasterError {
    /// Not an SVG that can be drawn.
    #[error("the SVG cannot be drawn: {0}")]
    Svg(#[from] resvg::usvg::Error),
    /// Too large, or without any extent.
    #[error("a picture of {width} by {height} pixels cannot be made")]
    Size {
        /// Width asked for.
        width: u32,
        /// Height asked for.
        height: u32,
    },
    /// The PNG could not be written.
    #[error("the PNG cannot be written: {0}")]
    Png(#[from] png::EncodingError),
}

/// Draws `svg` at `scale` pixels per unit and returns the PNG file.
///
/// # Errors
/// If the SVG does not parse, or the picture would have no pixels or more than memory holds.
pub fn png(svg: &str, scale: f32) -> Result<Vec<u8>, RasterError> {
    let mut options = usvg::Options::default();
    let fonts = options.fontdb_mut();
    for font in [
        dejavu::sans::regular(),
        dejavu::sans::bold(),
        dejavu::sans_mono::regular(),
        dejavu::sans_mono::bold(),
    ] {
        fonts.load_font_data(font.to_vec());
    }
    fonts.set_sans_serif_family("DejaVu Sans");
    fonts.set_monospace_family("DejaVu Sans Mono");
    let tree = usvg::Tree::from_str(svg, &options)?;

    let pixels = |length: f32| (length * scale).ceil() as u32;
    let (width, height) = (pixels(tree.size().width()), pixels(tree.size().height()));
    let mut pixmap =
        tiny_skia::Pixmap::new(width, height).ok_or(RasterError::Size { width, height })?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    encode(&pixmap)
}

/// The pictures lie on opaque paper, so that colour alone is kept.
fn encode(pixmap: &tiny_skia::Pixmap) -> Result<Vec<u8>, RasterError> {
    let rgb: Vec<u8> = pixmap
        .pixels()
        .iter()
        .map(|p| p.demultiply())
        .flat_map(|p| [p.red(), p.green(), p.blue()])
        .collect();
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, pixmap.width(), pixmap.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Balanced);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&rgb)?;
    writer.finish()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_svg_is_refused() {
        assert!(matches!(png("<html/>", 1.0), Err(RasterError::Svg(_))));
    }

    #[test]
    fn a_picture_without_pixels_is_refused() {
        let svg = r#"<svg xmlns="http://www.w3.org/2000/svg" width="4" height="4"/>"#;
        assert!(matches!(png(svg, 0.0), Err(RasterError::Size { width: 0, height: 0 })));
    }
}
