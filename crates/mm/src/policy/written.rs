//! How values of a policy are written where their type does not say it: bounds, and 0 for what there is not.
//!
//! What lies outside its bounds is refused with what it is and what was expected; whoever reads the file adds its
//! key and its place.

use core::fmt::Display;
use serde::de::{Deserialize, Deserializer, Error};

/// A whole number from `LEAST` to `MOST`.
///
/// # Errors
/// It is none.
pub fn within<'de, const LEAST: u32, const MOST: u32, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: TryFrom<u32>,
    D: Deserializer<'de>,
{
    let value = i64::deserialize(deserializer)?;
    let fitting = u32::try_from(value).ok().filter(|value| (LEAST..=MOST).contains(value));
    let number = fitting.and_then(|value| T::try_from(value).ok());
    number.ok_or_else(|| refused(value, format_args!("{LEAST}..={MOST}")))
}

/// A power of two up to `MOST`.
///
/// # Errors
/// It is none.
pub fn power_of_two<'de, const MOST: u32, D>(deserializer: D) -> Result<u32, D::Error>
where
    D: Deserializer<'de>,
{
    let value = i64::deserialize(deserializer)?;
    let fitting = u32::try_from(value).ok().filter(|value| *value <= MOST);
    let number = fitting.filter(|value| value.is_power_of_two());
    number.ok_or_else(|| refused(value, format_args!("a power of two up to {MOST}")))
}

fn refused<E: Error>(value: i64, expected: impl Display) -> E {
    E::custom(format_args!("is {value}, expected {expected}"))
}

/// Orders, as numbers.
pub mod order {
    use crate::types::{MAX_PAGE_ORDER, Order};
    use serde::{Deserializer, Serializer};

    /// An order that there can be.
    ///
    /// # Errors
    /// It is larger than any block.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Order, D::Error> {
        super::within::<0, { MAX_PAGE_ORDER as u32 }, u8, _>(deserializer).map(Order)
    }

    /// The order's number.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(order: &Order, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(order.0)
    }
}

/// Numbers of which 0 stands for "there is none": no such knob, or no such limit.
pub mod zero_is_none {
    use serde::{Deserialize, Deserializer, Serializer};

    /// A number, or none.
    ///
    /// # Errors
    /// It is no number.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u32>, D::Error> {
        u32::deserialize(deserializer).map(some)
    }

    /// The number, or 0.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(value.unwrap_or(0))
    }

    /// A number up to `MOST`, or none.
    ///
    /// # Errors
    /// It is larger.
    pub fn up_to<'de, const MOST: u32, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u32>, D::Error> {
        super::within::<0, MOST, u32, _>(deserializer).map(some)
    }

    fn some(value: u32) -> Option<u32> {
        Some(value).filter(|value| *value > 0)
    }
}
