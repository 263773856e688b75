//! The kinds of value that events' arguments are made of.

use crate::gfp::{GfpFlags, UnknownGfp};

/// Where a line stopped being what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The byte, counted from the start of what was parsed.
    pub at: usize,
    /// What should have been there.
    pub expected: &'static str,
}

/// What is left to parse of an event's arguments.
pub(super) struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(super) fn new(text: &'a [u8]) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    #[inline]
    pub(super) fn left(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    #[inline]
    pub(super) fn mismatch(&self, expected: &'static str) -> Mismatch {
        Mismatch { at: self.at, expected }
    }

    /// Takes `literal` if it comes next.
    #[inline]
    fn literal(&mut self, literal: &str) -> bool {
        let found = self.left().starts_with(literal.as_bytes());
        if found {
            self.at += literal.len();
        }
        found
    }

    /// Takes what comes before the next blank or comma.
    #[inline]
    fn word(&mut self) -> &'a [u8] {
        let left = self.left();
        let end = left.iter().position(|b| matches!(b, b' ' | b',')).unwrap_or(left.len());
        self.at += end;
        &left[..end]
    }

    /// Takes what comes before `stop`, or everything if it does not come.
    fn until(&mut self, stop: &[u8]) -> &'a [u8] {
        let left = self.left();
        let end = memchr::memmem::find(left, stop).unwrap_or(left.len());
        self.at += end;
        &left[..end]
    }

    /// Takes a decimal number without leading zeros.
    #[inline]
    fn decimal(&mut self) -> Option<u64> {
        let left = self.left();
        let (value, digits) = decimal(left)?;
        self.at += digits;
        Some(value)
    }

    /// Takes a hexadecimal number in lower case without leading zeros.
    #[inline]
    fn hex(&mut self) -> Option<u64> {
        let left = self.left();
        let mut value = 0u64;
        let mut digits = 0;
        while let Some(digit) = left.get(digits).and_then(|&b| hex_digit(b)) {
            value = value << 4 | digit;
            digits += 1;
        }
        if digits == 0 || digits > 16 || (left[0] == b'0' && digits > 1) {
            return None;
        }
        self.at += digits;
        Some(value)
    }
}

/// Reads the decimal number at the start of `bytes`: its value and how many digits it has.
///
/// `None` if there is none, if it has leading zeros, or if it does not fit.
#[inline]
pub(super) fn decimal(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    let mut digits = 0;
    while let Some(digit) = bytes.get(digits).map(|b| b.wrapping_sub(b'0')).filter(|&d| d < 10) {
        if digits >= 19 {
            value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
        } else {
            value = value * 10 + u64::from(digit);
        }
        digits += 1;
    }
    (digits > 0 && (bytes[0] != b'0' || digits == 1)).then_some((value, digits))
}

#[inline]
fn hex_digit(byte: u8) -> Option<u64> {
    match byte {
        b'0'..=b'9' => Some(u64::from(byte - b'0')),
        b'a'..=b'f' => Some(u64::from(byte - b'a' + 10)),
        _ => None,
    }
}

/// Appends a decimal number.
#[inline]
pub(super) fn put_decimal(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends a hexadecimal number of at least `width` digits.
#[inline]
pub(super) fn put_hex(value: u64, width: usize, out: &mut Vec<u8>) {
    let needed = (64 - value.leading_zeros() as usize).div_ceil(4).max(1);
    for place in (0..needed.max(width)).rev() {
        let digit = if place < 16 { value >> (4 * place) & 0xf } else { 0 };
        out.push(b"0123456789abcdef"[digit as usize]);
    }
}

/// A value in an event's arguments.
pub(super) trait Value<'a>: Sized {
    const EXPECTED: &'static str;
    fn take(cursor: &mut Cursor<'a>) -> Option<Self>;
    fn put(&self, out: &mut Vec<u8>);
}

/// A field: a literal such as ` order=` and a value, or for an `Option` maybe neither.
pub(super) trait Field<'a>: Sized {
    fn take_field(cursor: &mut Cursor<'a>, literal: &'static str) -> Result<Self, Mismatch>;
    fn put_field(&self, literal: &'static str, out: &mut Vec<u8>);
}

impl<'a, V: Value<'a>> Field<'a> for V {
    #[inline]
    fn take_field(cursor: &mut Cursor<'a>, literal: &'static str) -> Result<V, Mismatch> {
        if !cursor.literal(literal) {
            return Err(cursor.mismatch(if literal.is_empty() { V::EXPECTED } else { literal }));
        }
        V::take(cursor).ok_or_else(|| cursor.mismatch(V::EXPECTED))
    }

    #[inline]
    fn put_field(&self, literal: &'static str, out: &mut Vec<u8>) {
        out.extend_from_slice(literal.as_bytes());
        self.put(out);
    }
}

impl<'a, V: Value<'a>> Field<'a> for Option<V> {
    #[inline]
    fn take_field(cursor: &mut Cursor<'a>, literal: &'static str) -> Result<Self, Mismatch> {
        if !cursor.literal(literal) {
            return Ok(None);
        }
        V::take(cursor).map(Some).ok_or_else(|| cursor.mismatch(V::EXPECTED))
    }

    #[inline]
    fn put_field(&self, literal: &'static str, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.put_field(literal, out);
        }
    }
}

macro_rules! unsigned {
    ($($type:ty)*) => {$(
        impl<'a> Value<'a> for $type {
            const EXPECTED: &'static str = "a decimal number";
            #[inline]
            fn take(cursor: &mut Cursor<'a>) -> Option<$type> {
                cursor.decimal()?.try_into().ok()
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                put_decimal((*self).into(), out);
            }
        }
    )*};
}
unsigned!(u32 u64);

macro_rules! signed {
    ($($type:ty)*) => {$(
        impl<'a> Value<'a> for $type {
            const EXPECTED: &'static str = "a decimal number";
            #[inline]
            fn take(cursor: &mut Cursor<'a>) -> Option<$type> {
                let is_negative = cursor.literal("-");
                let magnitude = cursor.decimal()?;
                let value = if is_negative {
                    0i64.checked_sub_unsigned(magnitude).filter(|&value| value != 0)?
                } else {
                    magnitude.try_into().ok()?
                };
                value.try_into().ok()
            }
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                if *self < 0 {
                    out.push(b'-');
                }
                put_decimal(self.unsigned_abs().into(), out);
            }
        }
    )*};
}
signed!(i32 i64);

/// A number printed as `123`, `0x7b` or `7b`, depending on the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// Decimal, as older kernels print page frame numbers.
    Decimal(u64),
    /// Hexadecimal after `0x`.
    Hex(u64),
}

impl Number {
    /// Returns the number.
    #[inline]
    pub fn value(self) -> u64 {
        match self {
            Number::Decimal(value) | Number::Hex(value) => value,
        }
    }
}

impl<'a> Value<'a> for Number {
    const EXPECTED: &'static str = "a number, decimal or after 0x";
    #[inline]
    fn take(cursor: &mut Cursor<'a>) -> Option<Number> {
        if cursor.literal("0x") {
            cursor.hex().map(Number::Hex)
        } else {
            cursor.decimal().map(Number::Decimal)
        }
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Number::Decimal(value) => put_decimal(value, out),
            Number::Hex(value) => {
                out.extend_from_slice(b"0x");
                put_hex(value, 1, out);
            }
        }
    }
}

/// A hexadecimal number without `0x` (`%lx`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BareHex(pub u64);

impl<'a> Value<'a> for BareHex {
    const EXPECTED: &'static str = "a hexadecimal number";
    fn take(cursor: &mut Cursor<'a>) -> Option<BareHex> {
        cursor.hex().map(BareHex)
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_hex(self.0, 1, out);
    }
}

/// A pointer, usually hashed: equal pointers have equal values, and that is all they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer<'a> {
    /// Sixteen hexadecimal digits, as `%p` prints on 64 bits.
    Hex(u64),
    /// Hexadecimal after `0x`, as `trace-cmd` prints.
    Prefixed(u64),
    /// Anything else, with blanks before it: `(nil)`, `(null)`, `(____ptrval____)`.
    Text(&'a [u8]),
}

impl Pointer<'_> {
    /// Returns whether there is nothing at the other end: an allocation failed.
    pub fn is_null(self) -> bool {
        match self {
            Pointer::Hex(value) | Pointer::Prefixed(value) => value == 0,
            Pointer::Text(text) => matches!(text.trim_ascii_start(), b"(nil)" | b"(null)"),
        }
    }
}

impl<'a> Value<'a> for Pointer<'a> {
    const EXPECTED: &'static str = "a pointer";
    #[inline]
    fn take(cursor: &mut Cursor<'a>) -> Option<Pointer<'a>> {
        let left = cursor.left();
        if let Some(digits) = left.first_chunk::<16>()
            && left.get(16).is_none_or(|b| matches!(b, b' ' | b',' | b':'))
            && let Some(value) = hex16(digits)
        {
            cursor.at += 16;
            return Some(Pointer::Hex(value));
        }
        if cursor.literal("0x") {
            return cursor.hex().map(Pointer::Prefixed);
        }
        let blanks = left.iter().take_while(|&&b| b == b' ').count();
        cursor.at += blanks;
        let word = cursor.word();
        let is_text = word.len() > 2 && word.starts_with(b"(") && word.ends_with(b")");
        is_text.then(|| Pointer::Text(&left[..blanks + word.len()]))
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        match *self {
            Pointer::Hex(value) => put_hex(value, 16, out),
            Pointer::Prefixed(value) => {
                out.extend_from_slice(b"0x");
                put_hex(value, 1, out);
            }
            Pointer::Text(text) => out.extend_from_slice(text),
        }
    }
}

/// Reads sixteen hexadecimal digits in lower case.
#[inline]
fn hex16(digits: &[u8; 16]) -> Option<u64> {
    let mut value = 0u64;
    let mut wrong = 0u8;
    for &byte in digits {
        let digit = HEX_DIGITS[usize::from(byte)];
        wrong |= digit;
        value = value << 4 | u64::from(digit & 0xf);
    }
    (wrong < 0x80).then_some(value)
}

/// The value of each byte as a hexadecimal digit in lower case, 0xff if it is none.
const HEX_DIGITS: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

/// A word without blanks or commas, as `no_suitable_page` or `RECLAIM_WB_FILE|RECLAIM_WB_ASYNC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<'a>(pub &'a [u8]);

impl<'a> Value<'a> for Word<'a> {
    const EXPECTED: &'static str = "a word";
    fn take(cursor: &mut Cursor<'a>) -> Option<Word<'a>> {
        let word = cursor.word();
        (!word.is_empty()).then_some(Word(word))
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

/// A word filled up with blanks, as a zone's name (`%-8s`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddedWord<'a> {
    /// The word.
    pub word: &'a [u8],
    /// Columns it fills at least; 8 for zones.
    pub width: usize,
}

impl<'a> PaddedWord<'a> {
    /// Returns a zone's name in the kernel's eight columns.
    pub fn zone(word: &'a [u8]) -> PaddedWord<'a> {
        PaddedWord { word, width: 8 }
    }
}

impl<'a> Value<'a> for PaddedWord<'a> {
    const EXPECTED: &'static str = "a word filled up with blanks";
    fn take(cursor: &mut Cursor<'a>) -> Option<PaddedWord<'a>> {
        let word = cursor.word();
        if word.is_empty() {
            return None;
        }
        let left = cursor.left();
        let blanks = left.iter().take_while(|&&b| b == b' ').count();
        // One blank belongs to the next field, unless the line ends here.
        let padding = if blanks == left.len() { blanks } else { blanks.saturating_sub(1) };
        cursor.at += padding;
        let width = if padding == 0 { word.len().min(8) } else { word.len() + padding };
        Some(PaddedWord { word, width })
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.word);
        out.extend(std::iter::repeat_n(b' ', self.width.saturating_sub(self.word.len())));
    }
}

/// Allocation flags, as text; [`Gfp::flags`] gives the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gfp<'a>(pub &'a [u8]);

impl Gfp<'_> {
    /// Returns the flags by name.
    ///
    /// # Errors
    /// [`UnknownGfp`] is the first name that is not known.
    pub fn flags(self) -> Result<GfpFlags, UnknownGfp> {
        GfpFlags::from_bytes(self.0)
    }
}

impl<'a> Value<'a> for Gfp<'a> {
    const EXPECTED: &'static str = "allocation flags";
    #[inline]
    fn take(cursor: &mut Cursor<'a>) -> Option<Gfp<'a>> {
        let word = cursor.word();
        (!word.is_empty()).then_some(Gfp(word))
    }
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

/// The page frames a compaction scanner looked at: `(0xfe00 ~ 0x10000)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionRange {
    /// The first page frame number.
    pub start_pfn: Number,
    /// The page frame number after the last.
    pub end_pfn: Number,
}

impl<'a> Value<'a> for CompactionRange {
    const EXPECTED: &'static str = "a range, `(0x1 ~ 0x2)`";
    fn take(cursor: &mut Cursor<'a>) -> Option<CompactionRange> {
        let start_pfn = cursor.literal("(").then(|| Number::take(cursor))??;
        let end_pfn = cursor.literal(" ~ ").then(|| Number::take(cursor))??;
        cursor.literal(")").then_some(CompactionRange { start_pfn, end_pfn })
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.push(b'(');
        self.start_pfn.put(out);
        out.extend_from_slice(b" ~ ");
        self.end_pfn.put(out);
        out.push(b')');
    }
}

/// A compaction scanner's position: `migrate_pfn=`, or on v3.14 to v3.18 `migrate_start=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanner {
    /// The page frame number.
    pub pfn: Number,
    /// Whether the field is called `..._start`.
    pub is_called_start: bool,
}

impl<'a> Value<'a> for Scanner {
    const EXPECTED: &'static str = "a scanner's position";
    fn take(cursor: &mut Cursor<'a>) -> Option<Scanner> {
        let is_called_start = cursor.literal("start=");
        let named = is_called_start || cursor.literal("pfn=");
        Some(Scanner { pfn: named.then(|| Number::take(cursor))??, is_called_start })
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(if self.is_called_start { b"start=" } else { b"pfn=" });
        self.pfn.put(out);
    }
}

/// A shrinker: its scan function and its address, `super_cache_scan+0x0/0x1a0 00000000df6560f6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrinker<'a> {
    /// The function's name and what follows it, a module's name among it.
    pub function: &'a [u8],
    /// The address.
    pub pointer: Pointer<'a>,
}

impl<'a> Value<'a> for Shrinker<'a> {
    const EXPECTED: &'static str = "a shrinker's function and address";
    fn take(cursor: &mut Cursor<'a>) -> Option<Shrinker<'a>> {
        let text = cursor.until(b":");
        let gap = memchr::memrchr(b' ', text)?;
        let (function, pointer) = (&text[..gap], &text[gap + 1..]);
        let mut inner = Cursor::new(pointer);
        let pointer = Pointer::take(&mut inner)?;
        (inner.left().is_empty() && !function.is_empty()).then_some(Shrinker { function, pointer })
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.function);
        out.push(b' ');
        self.pointer.put(out);
    }
}

/// Free text up to the next field, as a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(pub &'a [u8]);

impl<'a> Value<'a> for Name<'a> {
    const EXPECTED: &'static str = "a name";
    /// Ends where a field of the events that have a name follows, else at the end.
    fn take(cursor: &mut Cursor<'a>) -> Option<Name<'a>> {
        let left = cursor.left();
        let stops: [&[u8]; 4] = [b", present=", b", nr=", b" oom_score_adj=", b" total-vm="];
        let end = stops.iter().filter_map(|stop| memchr::memmem::rfind(left, stop)).min();
        let end = end.unwrap_or(left.len());
        cursor.at += end;
        Some(Name(&left[..end]))
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn same<'a, V: Value<'a> + std::fmt::Debug>(text: &'a str) -> V {
        let mut cursor = Cursor::new(text.as_bytes());
        let value = V::take(&mut cursor).expect("parses");
        let mut out = Vec::new();
        value.put(&mut out);
        out.extend_from_slice(cursor.left());
        assert_eq!(String::from_utf8(out).unwrap(), text, "{value:?}");
        value
    }

    #[track_caller]
    fn wrong<'a, V: Value<'a> + std::fmt::Debug>(text: &'a str) {
        let value = V::take(&mut Cursor::new(text.as_bytes()));
        assert!(value.is_none(), "{text:?} is {value:?}");
    }

    #[test]
    fn numbers_keep_their_base_and_have_no_leading_zeros() {
        assert_eq!(same::<Number>("0x1cf70 x"), Number::Hex(0x1cf70));
        assert_eq!(same::<Number>("28507"), Number::Decimal(28507));
        assert_eq!(same::<Number>("0xffffffffffffffff").value(), u64::MAX);
        assert_eq!(same::<i32>("-1"), -1);
        assert_eq!(same::<i64>("-9223372036854775808"), i64::MIN);
        assert_eq!(same::<u64>("18446744073709551615"), u64::MAX);
        for bad in ["", "x", "0x", "0x01", "01", "0x1ffffffffffffffff", "18446744073709551616"] {
            wrong::<Number>(bad);
        }
        wrong::<i32>("2147483648");
        wrong::<i32>("-0");
    }

    #[test]
    fn every_way_to_print_a_pointer_is_kept() {
        assert_eq!(same::<Pointer<'_>>("0000000068058a4b pfn"), Pointer::Hex(0x68058a4b));
        assert_eq!(same::<Pointer<'_>>("0xffffea0000"), Pointer::Prefixed(0xff_ffea_0000));
        for null in ["(nil)", "          (null)", "0000000000000000", "0x0"] {
            assert!(same::<Pointer<'_>>(null).is_null(), "{null}");
        }
        assert!(!same::<Pointer<'_>>("(____ptrval____)").is_null());
        wrong::<Pointer<'_>>("FFFF000068058a4b");
        wrong::<Pointer<'_>>("068058a4b");
    }

    #[test]
    fn padding_belongs_to_the_word_and_one_blank_to_the_next_field() {
        let word = same::<PaddedWord<'_>>("DMA32    order=9");
        assert_eq!(word, PaddedWord::zone(b"DMA32"));
        assert_eq!(same::<PaddedWord<'_>>("Normal  "), PaddedWord::zone(b"Normal"));
        assert_eq!(same::<PaddedWord<'_>>("Movable9 order=9"), PaddedWord::zone(b"Movable9"));
        same::<PaddedWord<'_>>("DMA order=9");
        wrong::<PaddedWord<'_>>(" order=9");
    }

    #[test]
    fn a_shrinker_may_be_a_modules() {
        let shrinker = same::<Shrinker<'_>>("scan+0x0/0x70 [xfs] 00000000df6560f6: nid: 1");
        assert_eq!(shrinker.function, b"scan+0x0/0x70 [xfs]");
        wrong::<Shrinker<'_>>("scan+0x0/0x70: nid");
    }
}
