//! Tables as Parquet, and back.
//!
//! Equal tables give equal bytes: one row group, fixed options, no time and no version in the file.

use std::sync::Arc;

use highorder_files::limits;
use highorder_input::fenced;
use parquet::basic::{
    Compression, ConvertedType, Encoding, Repetition, Type as Physical, ZstdLevel,
};
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

/// Stands in the file instead of the library's name and version, which change.
const CREATED_BY: &str = "highorder-record 1";

/// Columns of one length.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Columns(pub(crate) Vec<(String, Cells)>);

/// The cells of a column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cells {
    /// Text, never missing.
    Text(Vec<String>),
    /// Whole numbers, 64 bits without sign.
    Counts(Vec<Option<u64>>),
    /// Numbers of 64 bits.
    Reals(Vec<Option<f64>>),
}

impl Cells {
    fn len(&self) -> usize {
        match self {
            Self::Text(cells) => cells.len(),
            Self::Counts(cells) => cells.len(),
            Self::Reals(cells) => cells.len(),
        }
    }
}

impl Columns {
    /// The file's bytes.
    pub(crate) fn to_parquet(&self) -> Result<Vec<u8>> {
        self.encoded(properties()?)
    }

    /// The bytes of a file with these options.
    pub(crate) fn encoded(&self, properties: Arc<WriterProperties>) -> Result<Vec<u8>> {
        let mut fields = Vec::new();
        for (name, cells) in &self.0 {
            let (physical, converted, repetition) = match cells {
                Cells::Text(_) => (Physical::BYTE_ARRAY, ConvertedType::UTF8, Repetition::REQUIRED),
                Cells::Counts(_) => (Physical::INT64, ConvertedType::UINT_64, Repetition::OPTIONAL),
                Cells::Reals(_) => (Physical::DOUBLE, ConvertedType::NONE, Repetition::OPTIONAL),
            };
            let field = Type::primitive_type_builder(name, physical)
                .with_converted_type(converted)
                .with_repetition(repetition)
                .build()?;
            fields.push(TypePtr::new(field));
        }
        let schema = Type::group_type_builder("schema").with_fields(fields).build()?;
        let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), properties)?;
        // A file without rows has no row group.
        if self.0.first().is_some_and(|(_, cells)| cells.len() > 0) {
            let mut group = file.next_row_group()?;
            for (_, cells) in &self.0 {
                match cells {
                    Cells::Text(cells) => {
                        let cells: Vec<ByteArray> =
                            cells.iter().map(|text| ByteArray::from(text.as_str())).collect();
                        write::<ByteArrayType>(&mut group, &cells, None)?;
                    }
                    Cells::Counts(cells) => {
                        let values: Vec<i64> =
                            cells.iter().flatten().map(|n| n.cast_signed()).collect();
                        write::<Int64Type>(&mut group, &values, Some(&levels(cells)))?;
                    }
                    Cells::Reals(cells) => {
                        let values: Vec<f64> = cells.iter().flatten().copied().collect();
                        write::<DoubleType>(&mut group, &values, Some(&levels(cells)))?;
                    }
                }
            }
            group.close()?;
        }
        file.into_inner()
    }

    /// Reads a file's bytes.
    ///
    /// What the file promises is looked at first. The library has assertions of its own about the rest, which a
    /// file that was made to can break: then it is the file that is wrong.
    pub(crate) fn from_parquet(bytes: Vec<u8>) -> Result<Self> {
        fenced(|| Self::from_parquet_unfenced(bytes.into())).unwrap_or_else(|| {
            Err(ParquetError::General("a table that contradicts itself".to_owned()))
        })
    }

    fn from_parquet_unfenced(bytes: bytes::Bytes) -> Result<Self> {
        check_promises(&bytes)?;
        let file = SerializedFileReader::new(bytes)?;
        let mut columns = Self::default();
        for column in file.metadata().file_metadata().schema_descr().columns() {
            let cells = match (column.physical_type(), column.converted_type()) {
                (Physical::BYTE_ARRAY, ConvertedType::UTF8) => Cells::Text(Vec::new()),
                (Physical::INT64, ConvertedType::UINT_64) => Cells::Counts(Vec::new()),
                (Physical::DOUBLE, _) => Cells::Reals(Vec::new()),
                (physical, _) => {
                    let name = column.name();
                    return Err(ParquetError::General(format!(
                        "column `{name}` of type {physical}, expected text, UINT_64 or DOUBLE"
                    )));
                }
            };
            columns.0.push((column.name().to_owned(), cells));
        }
        for group in 0..file.num_row_groups() {
            let group = file.get_row_group(group)?;
            let rows = group.metadata().num_rows();
            for (i, (_, cells)) in columns.0.iter_mut().enumerate() {
                read(group.get_column_reader(i)?, rows as usize, cells)?;
            }
        }
        Ok(columns)
    }

    /// Takes one column out, by name.
    pub(crate) fn take(&mut self, name: &str) -> Option<Cells> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(at).1)
    }
}

/// Refuses a file whose metadata promise more than a record has, or places that it does not have.
fn check_promises(bytes: &bytes::Bytes) -> Result<()> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(bytes)?;
    let refuse = |found: String| Err(ParquetError::General(found));
    let whole = |number: i64| u64::try_from(number).unwrap_or(u64::MAX);
    let (mut nr_rows, mut nr_bytes) = (0_u64, 0_u64);
    for group in metadata.row_groups() {
        nr_rows = nr_rows.saturating_add(whole(group.num_rows()));
        for column in group.columns() {
            nr_bytes = nr_bytes.saturating_add(whole(column.uncompressed_size()));
            let first = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let end = whole(first).checked_add(whole(column.compressed_size()));
            if end.is_none_or(|end| end > bytes.len() as u64) {
                return refuse(format!("column `{}` outside of the file", column.column_path()));
            }
            if whole(column.num_values()) != whole(group.num_rows()) {
                return refuse(format!("column `{}` of another length", column.column_path()));
            }
        }
    }
    limits::TABLE_ROWS.check(nr_rows).map_err(ParquetError::General)?;
    match nr_bytes > limits::RECORD_PART.most {
        true => {
            refuse(format!("columns of {nr_bytes} bytes, expected {}", limits::RECORD_PART.told()))
        }
        false => Ok(()),
    }
}

fn properties() -> Result<Arc<WriterProperties>> {
    let properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .set_dictionary_enabled(true)
        .set_encoding(Encoding::PLAIN)
        .set_max_row_group_row_count(None)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .build();
    Ok(Arc::new(properties))
}

/// 1 where there is a value, 0 where it is missing.
fn levels<T>(cells: &[Option<T>]) -> Vec<i16> {
    cells.iter().map(|cell| i16::from(cell.is_some())).collect()
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<()> {
    let none = || ParquetError::General("more columns than the schema has".to_owned());
    let mut column = group.next_column()?.ok_or_else(none)?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

fn read(reader: ColumnReader, rows: usize, cells: &mut Cells) -> Result<()> {
    let mut levels = Vec::new();
    let read_rows = match (reader, cells) {
        (ColumnReader::ByteArrayColumnReader(mut reader), Cells::Text(cells)) => {
            let mut values = Vec::new();
            let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
            for value in values {
                cells.push(value.as_utf8()?.to_owned());
            }
            read
        }
        (ColumnReader::Int64ColumnReader(mut reader), Cells::Counts(cells)) => {
            let mut values = Vec::new();
            let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
            let values = values.into_iter().map(i64::cast_unsigned).collect();
            spread(values, &levels, cells);
            read
        }
        (ColumnReader::DoubleColumnReader(mut reader), Cells::Reals(cells)) => {
            let mut values = Vec::new();
            let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
            spread(values, &levels, cells);
            read
        }
        _ => return Err(ParquetError::General("a column of another type than its schema".into())),
    };
    if read_rows == rows {
        Ok(())
    } else {
        Err(ParquetError::General(format!("a column of {read_rows} rows, expected {rows}")))
    }
}

/// Puts values where the levels say that there are some.
fn spread<T>(values: Vec<T>, levels: &[i16], cells: &mut Vec<Option<T>>) {
    if levels.is_empty() {
        cells.extend(values.into_iter().map(Some));
        return;
    }
    let mut values = values.into_iter();
    cells.extend(levels.iter().map(|&level| if level == 0 { None } else { values.next() }));
}

#[cfg(test)]
mod tests {
    use parquet::file::metadata::ParquetMetaDataWriter;
    use proptest::prelude::*;

    use super::*;

    fn columns() -> impl Strategy<Value = Columns> {
        (0_usize..40).prop_flat_map(|rows| {
            let text = proptest::collection::vec("\\PC{0,6}", rows).prop_map(Cells::Text);
            let counts = proptest::collection::vec(any::<Option<u64>>(), rows);
            let reals =
                proptest::collection::vec(proptest::option::of(proptest::num::f64::NORMAL), rows);
            (text, counts.prop_map(Cells::Counts), reals.prop_map(Cells::Reals)).prop_map(
                |(text, counts, reals)| {
                    Columns(vec![
                        ("a name".into(), text),
                        ("n=(1;".into(), counts),
                        ("x".into(), reals),
                    ])
                },
            )
        })
    }

    #[test]
    fn a_column_outside_of_its_file_is_an_error_and_no_panic() {
        let bytes = include_bytes!("../../../tests/data/attacks/outside.parquet").to_vec();
        let error = Columns::from_parquet(bytes).unwrap_err().to_string();
        assert!(error.contains("outside of the file"), "{error}");
    }

    /// A file whose columns say that they have no dictionary, although their pages were encoded with one.
    fn without_dictionaries(bytes: &[u8]) -> Vec<u8> {
        // The length of what comes before them, and the file's mark.
        const TAIL_BYTES: usize = 8;
        let whole = bytes::Bytes::copy_from_slice(bytes);
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&whole).unwrap();
        let footer = bytes.len() - TAIL_BYTES;
        let length = u32::from_le_bytes(bytes[footer..footer + 4].try_into().unwrap());
        let groups = metadata.row_groups().iter().cloned().map(|group| {
            let columns = group.columns().iter().cloned();
            let columns = columns.map(|column| {
                column.into_builder().set_dictionary_page_offset(None).build().unwrap()
            });
            let columns = columns.collect();
            group.into_builder().set_column_metadata(columns).build().unwrap()
        });
        let groups = groups.collect();
        let metadata = metadata.into_builder().set_row_groups(groups).build();
        let mut changed = bytes[..footer - length as usize].to_vec();
        ParquetMetaDataWriter::new(&mut changed, &metadata).finish().unwrap();
        changed
    }

    #[test]
    fn a_table_over_which_the_library_panics_is_an_error() {
        let cells = Cells::Text(["a", "b", "a"].map(str::to_owned).to_vec());
        let bytes = Columns(vec![("text".to_owned(), cells)]).to_parquet().unwrap();
        let changed = without_dictionaries(&bytes);
        let panics = std::panic::catch_unwind(|| {
            drop(Columns::from_parquet_unfenced(changed.clone().into()));
        });
        assert!(panics.is_err(), "this library needs no fence, or another test");
        let error = Columns::from_parquet(changed).unwrap_err().to_string();
        assert!(error.contains("contradicts itself"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_written_reads_back_and_always_the_same(columns in columns()) {
            let bytes = columns.to_parquet().unwrap();
            prop_assert_eq!(&bytes, &columns.to_parquet().unwrap());
            prop_assert_eq!(Columns::from_parquet(bytes).unwrap(), columns);
        }

        #[test]
        fn a_file_cut_short_is_an_error_and_no_panic(
            columns in columns(), at in any::<prop::sample::Index>()
        ) {
            let mut bytes = columns.to_parquet().unwrap();
            bytes.truncate(at.index(bytes.len()));
            prop_assert!(Columns::from_parquet(bytes).is_err());
        }
    }
}
