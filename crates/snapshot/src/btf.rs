//! Where the members of the running kernel's structures lie: a small reader of BTF, the type
//! information that kernels carry in `/sys/kernel/btf/vmlinux`.
//!
//! Reads what a snapshot asks for: struct and union members by path (through unnamed members),
//! sizes, array dimensions and enum values. It is ours because that is little of the whole graph of types, and
//! because an error has to name the member that this kernel lacks.
//!
//! Models: Documentation/bpf/btf.rst.
//! Departs: functions, variables and tags are skipped.

use highorder_input::InputError;
use std::collections::BTreeMap;

const MAGIC: u16 = 0xeb9f;
/// A type may be wrapped in so many typedefs and qualifiers before we call it a loop.
const WRAPPERS_MAX: usize = 64;
/// Unnamed members may nest so deep before we call it a loop.
const NESTING_MAX: usize = 32;

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Where a member lies and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the start of the outermost structure.
    pub offset: usize,
    /// Bytes, all array elements together.
    pub size: usize,
    /// Array dimensions, outermost first; empty for what is no array.
    pub dims: Vec<usize>,
    type_id: u32,
}

impl Field {
    /// Bytes of one element of the innermost dimension.
    #[must_use]
    pub fn element_size(&self) -> usize {
        self.size / self.dims.iter().product::<usize>().max(1)
    }
}

/// The types of one kernel.
#[derive(Debug)]
pub struct Btf {
    label: String,
    types: Vec<Type>,
    strings: Vec<u8>,
    /// Structures and unions by name; the first of that name that is defined.
    structs: BTreeMap<String, u32>,
    enum_values: BTreeMap<String, i64>,
}

#[derive(Debug)]
struct Type {
    kind: u32,
    /// Size in bytes, or the type referred to.
    size_or_type: u32,
    members: Vec<Member>,
    nr_elements: u32,
}

#[derive(Debug)]
struct Member {
    name: u32,
    type_id: u32,
    bit_offset: u32,
    is_bitfield: bool,
}

impl Btf {
    /// Parses the whole file; `label` is the name that errors carry.
    ///
    /// # Errors
    /// If it is not BTF, or ends early.
    pub fn parse(label: &str, bytes: &[u8]) -> Result<Self, InputError> {
        Parser { bytes, at: 0 }.parse(label).map_err(|message| InputError::file(label, message))
    }

    /// Returns the member of `strct` at a path such as `lrugen.max_seq`.
    ///
    /// # Errors
    /// The missing name: another kernel than those we know.
    pub fn field(&self, strct: &str, path: &str) -> Result<Field, InputError> {
        let missing = |name: &str| {
            InputError::file(
                &self.label,
                format!("no member `{name}` in struct {strct} (for `{path}`)"),
            )
        };
        let mut type_id = *self.structs.get(strct).ok_or_else(|| self.no_struct(strct))?;
        let mut offset = 0;
        for name in path.split('.') {
            let (at, member) = self.member(type_id, name, 0).ok_or_else(|| missing(name))?;
            offset += at;
            type_id = member;
        }
        let mut dims = Vec::new();
        let mut element = self.unwrapped(type_id);
        while self.types[element as usize].kind == kind::ARRAY {
            let array = &self.types[element as usize];
            dims.push(array.nr_elements as usize);
            element = self.unwrapped(array.size_or_type);
        }
        let element_size = self.size_of(element).ok_or_else(|| missing(path))?;
        let size = element_size * dims.iter().product::<usize>();
        Ok(Field { offset, size, dims, type_id: element })
    }

    /// Returns the size of a structure in bytes.
    ///
    /// # Errors
    /// If the kernel has none of that name.
    pub fn struct_size(&self, strct: &str) -> Result<usize, InputError> {
        let id = *self.structs.get(strct).ok_or_else(|| self.no_struct(strct))?;
        Ok(self.types[id as usize].size_or_type as usize)
    }

    /// Returns the plain integer members of a structure: name, offset and size in bytes.
    ///
    /// # Errors
    /// If the kernel has no structure of that name.
    pub fn integers(&self, strct: &str) -> Result<Vec<(String, usize, usize)>, InputError> {
        let id = *self.structs.get(strct).ok_or_else(|| self.no_struct(strct))?;
        let mut integers = Vec::new();
        for member in &self.types[id as usize].members {
            let target = &self.types[self.unwrapped(member.type_id) as usize];
            if target.kind == kind::INT && !member.is_bitfield {
                let name = self.string(member.name).to_owned();
                integers.push((name, member.bit_offset as usize / 8, target.size_or_type as usize));
            }
        }
        Ok(integers)
    }

    /// Returns the value of an enumerator.
    #[must_use]
    pub fn enum_value(&self, name: &str) -> Option<i64> {
        self.enum_values.get(name).copied()
    }

    /// Returns whether the kernel defines a structure of that name.
    #[must_use]
    pub fn has_struct(&self, strct: &str) -> bool {
        self.structs.contains_key(strct)
    }

    fn no_struct(&self, strct: &str) -> InputError {
        InputError::file(&self.label, format!("found no struct {strct}, expected one"))
    }

    /// Looks for a member by name, also inside unnamed structures and unions.
    fn member(&self, type_id: u32, name: &str, depth: usize) -> Option<(usize, u32)> {
        let mut id = self.unwrapped(type_id);
        for _ in 0..WRAPPERS_MAX {
            let found = &self.types[id as usize];
            if found.kind == kind::ARRAY {
                id = self.unwrapped(found.size_or_type);
            }
        }
        if depth > NESTING_MAX {
            return None;
        }
        self.types[id as usize].members.iter().find_map(|member| {
            let offset = member.bit_offset as usize / 8;
            match self.string(member.name) {
                "" => self
                    .member(member.type_id, name, depth + 1)
                    .map(|(inner, found)| (offset + inner, found)),
                found if found == name && !member.is_bitfield => Some((offset, member.type_id)),
                _ => None,
            }
        })
    }

    /// Follows typedefs and qualifiers.
    fn unwrapped(&self, mut id: u32) -> u32 {
        for _ in 0..WRAPPERS_MAX {
            let found = &self.types[id as usize];
            match found.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = found.size_or_type;
                }
                _ => break,
            }
        }
        id
    }

    fn size_of(&self, id: u32) -> Option<usize> {
        let found = &self.types[id as usize];
        match found.kind {
            kind::PTR => Some(8),
            kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::FLOAT => {
                Some(found.size_or_type as usize)
            }
            _ => None,
        }
    }

    fn string(&self, offset: u32) -> &str {
        let bytes = self.strings.get(offset as usize..).unwrap_or_default();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).unwrap_or_default()
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn u16(&mut self) -> Result<u16, String> {
        let bytes = self.bytes.get(self.at..self.at + 2).ok_or_else(|| self.short())?;
        self.at += 2;
        Ok(u16::from_le_bytes(bytes.try_into().expect("two bytes")))
    }

    fn u32(&mut self) -> Result<u32, String> {
        let bytes = self.bytes.get(self.at..self.at + 4).ok_or_else(|| self.short())?;
        self.at += 4;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn short(&self) -> String {
        format!("ends at byte {}, expected more type information", self.bytes.len())
    }

    fn parse(mut self, label: &str) -> Result<Btf, String> {
        let magic = self.u16()?;
        if magic != MAGIC {
            return Err(format!(
                "begins with {magic:#x}, expected {MAGIC:#x} (BTF, little endian)"
            ));
        }
        let version = self.u16()? & 0xff;
        if version != 1 {
            return Err(format!("is BTF version {version}, expected 1"));
        }
        let header_len = self.u32()? as usize;
        let (type_off, type_len) = (self.u32()? as usize, self.u32()? as usize);
        let (str_off, str_len) = (self.u32()? as usize, self.u32()? as usize);
        let whole = self.bytes;
        let section = |off: usize, len: usize| {
            whole.get(header_len + off..header_len + off + len).ok_or_else(|| {
                format!("ends at byte {}, expected a section of {len} bytes", whole.len())
            })
        };
        let strings = section(str_off, str_len)?.to_vec();
        self = Parser { bytes: section(type_off, type_len)?, at: 0 };
        // Type 0 is void and not stored.
        let void = Type { kind: 0, size_or_type: 0, members: Vec::new(), nr_elements: 0 };
        let mut btf = Btf {
            label: label.to_owned(),
            types: vec![void],
            strings,
            structs: BTreeMap::new(),
            enum_values: BTreeMap::new(),
        };
        while self.at < self.bytes.len() {
            self.one_type(&mut btf)?;
        }
        let nr_types = btf.types.len() as u32;
        for (id, found) in btf.types.iter().enumerate() {
            let refers = !matches!(
                found.kind,
                kind::INT
                    | kind::STRUCT
                    | kind::UNION
                    | kind::ENUM
                    | kind::ENUM64
                    | kind::FLOAT
                    | kind::FWD
                    | kind::DATASEC
            );
            let own = refers && found.size_or_type >= nr_types;
            if own || found.members.iter().any(|member| member.type_id >= nr_types) {
                return Err(format!("type {id} refers to a type that the {nr_types} types lack"));
            }
        }
        Ok(btf)
    }

    fn one_type(&mut self, btf: &mut Btf) -> Result<(), String> {
        let id = btf.types.len() as u32;
        let name = self.u32()?;
        let info = self.u32()?;
        let mut found = Type {
            kind: info >> 24 & 0x1f,
            size_or_type: self.u32()?,
            members: Vec::new(),
            nr_elements: 0,
        };
        let (nr, flag) = (info & 0xffff, info >> 31 == 1);
        match found.kind {
            kind::INT | kind::VAR | kind::DECL_TAG => self.at += 4,
            kind::ARRAY => {
                found.size_or_type = self.u32()?;
                self.u32()?;
                found.nr_elements = self.u32()?;
            }
            kind::STRUCT | kind::UNION => {
                for _ in 0..nr {
                    let (name, type_id, offset) = (self.u32()?, self.u32()?, self.u32()?);
                    found.members.push(Member {
                        name,
                        type_id,
                        bit_offset: if flag { offset & 0xff_ffff } else { offset },
                        is_bitfield: flag && offset >> 24 != 0,
                    });
                }
                let name = btf.string(name).to_owned();
                if !name.is_empty() {
                    btf.structs.entry(name).or_insert(id);
                }
            }
            kind::ENUM => {
                for _ in 0..nr {
                    let (name, value) = (self.u32()?, self.u32()?);
                    let value = if flag { i64::from(value as i32) } else { i64::from(value) };
                    let name = btf.string(name).to_owned();
                    btf.enum_values.entry(name).or_insert(value);
                }
            }
            kind::ENUM64 => {
                for _ in 0..nr {
                    let (name, low, high) = (self.u32()?, self.u32()?, self.u32()?);
                    let name = btf.string(name).to_owned();
                    let value = (u64::from(high) << 32 | u64::from(low)) as i64;
                    btf.enum_values.entry(name).or_insert(value);
                }
            }
            kind::FUNC_PROTO => self.at += 8 * nr as usize,
            kind::DATASEC => self.at += 12 * nr as usize,
            kind::PTR
            | kind::FWD
            | kind::TYPEDEF
            | kind::VOLATILE
            | kind::CONST
            | kind::RESTRICT
            | kind::FUNC
            | kind::FLOAT
            | kind::TYPE_TAG => {}
            other => return Err(format!("type {id} is of kind {other}, expected 1..=19")),
        }
        if self.at > self.bytes.len() {
            return Err(self.short());
        }
        btf.types.push(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// struct pair { union { u32 low; u32 word; }; u32 table[2][3]; } and enum { RED = 3 }.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0pair\0low\0word\0table\0RED\0";
        let at = |name: &str| {
            let needle = [b"\0", name.as_bytes(), b"\0"].concat();
            strings.windows(needle.len()).position(|w| w == needle).unwrap() as u32 + 1
        };
        let mut words: Vec<u32> = Vec::new();
        words.extend([at("int"), kind::INT << 24, 4, 32]); // 1
        words.extend([0, kind::UNION << 24 | 2, 4, at("low"), 1, 0, at("word"), 1, 0]); // 2
        words.extend([0, kind::ARRAY << 24, 0, 1, 1, 3]); // 3
        words.extend([0, kind::ARRAY << 24, 0, 3, 1, 2]); // 4
        words.extend([at("pair"), kind::STRUCT << 24 | 2, 28, 0, 2, 0, at("table"), 4, 32]); // 5
        words.extend([0, kind::ENUM << 24 | 1, 4, at("RED"), 3]); // 6
        let types: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&types);
        bytes.extend_from_slice(strings);
        bytes
    }

    #[test]
    fn members_are_found_through_unnamed_unions_and_arrays_have_dimensions() {
        let btf = Btf::parse("sample", &sample()).unwrap();
        assert_eq!(btf.field("pair", "word").unwrap().offset, 0);
        let table = btf.field("pair", "table").unwrap();
        assert_eq!((table.offset, table.size, table.dims.clone()), (4, 24, vec![2, 3]));
        assert_eq!(table.element_size(), 4);
        assert_eq!(btf.enum_value("RED"), Some(3));
        assert_eq!(btf.struct_size("pair"), Ok(28));
    }

    #[test]
    fn a_missing_member_is_named() {
        let btf = Btf::parse("sample", &sample()).unwrap();
        let error = btf.field("pair", "table.absent").unwrap_err().to_string();
        assert_eq!(error, "sample: no member `absent` in struct pair (for `table.absent`)");
        assert!(btf.field("absent", "x").is_err());
    }

    #[test]
    fn the_running_kernels_struct_page_is_64_bytes() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else { return };
        let btf = Btf::parse("vmlinux", &bytes).unwrap();
        assert_eq!(btf.struct_size("page"), Ok(64));
        assert_eq!(btf.field("page", "flags").unwrap().offset, 0);
        assert_eq!(btf.field("page", "lru").unwrap().offset, 8);
        assert_eq!(btf.field("zone", "free_area").unwrap().dims, [11]);
        assert_eq!(btf.enum_value("MIGRATE_MOVABLE"), Some(1));
    }

    proptest! {
        #[test]
        fn altered_or_cut_btf_is_refused_or_read_but_never_panics(
            at in 0usize..200, value: u8, cut in 0usize..240,
        ) {
            let mut bytes = sample();
            let len = bytes.len();
            bytes[at % len] = value;
            bytes.truncate(len.saturating_sub(cut % len));
            if let Ok(btf) = Btf::parse("altered", &bytes) {
                let _ = btf.field("pair", "table");
                let _ = btf.field("pair", "word");
                let _ = btf.integers("pair");
            }
        }
    }
}
