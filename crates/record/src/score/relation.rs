//! The language in which claims say what has to be true: sums and products of named values, compared.
//!
//! ```text
//! reduction >= 0.20
//! base > 1000 and new == 0
//! 1.5 <= ratio <= 3.0
//! abs((k1 + d1) / (k0 + d0) - 1) < 0.10
//! ```
//!
//! Numbers: `+ - * /`, brackets, `max()`, `min()`, `abs()`. Truths: `== != < <= > >=`, which chain as in
//! mathematics, then `not`, `and`, `or`, each binding less than the one before.

use std::cell::Cell;
use std::fmt;

/// Two numbers are equal if they differ by no more than this share of the larger one: what is summed and
/// divided on the way to a number loses its last digits.
const EQUAL: f64 = 1e-9;
/// Functions, and how many numbers they take at least and at most.
const FUNCTIONS: [(&str, Function, usize, usize); 3] = [
    ("abs", Function::Abs, 1, 1),
    ("max", Function::Max, 1, usize::MAX),
    ("min", Function::Min, 1, usize::MAX),
];

/// A relation that was read: true or false once its names have values.
#[derive(Clone, Debug, PartialEq)]
pub struct Relation(Expression);

/// Why a text is no relation: what was found, and what was expected there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`, character {at}: found {found}, expected {expected}")]
pub struct RelationError {
    /// The whole text.
    pub text: String,
    /// The character, from 1.
    pub at: usize,
    /// What stands there.
    pub found: String,
    /// What should.
    pub expected: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
enum Expression {
    Number(f64),
    Name(String),
    Negative(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
    Call(Function, Vec<Expression>),
    /// The first, and each that it is compared with in turn.
    Chain(Box<Expression>, Vec<(Comparison, Expression)>),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Plus,
    Minus,
    Times,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Abs,
    Max,
    Min,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    AtMost,
    More,
    AtLeast,
}

impl Relation {
    /// Reads a relation.
    ///
    /// # Errors
    /// The first character at which it is none.
    pub fn parse(text: &str) -> Result<Self, RelationError> {
        let mut parser = Parser { text, tokens: tokens(text)?, at: 0 };
        let start = parser.place();
        let expression = parser.or()?;
        if parser.peek().is_some() {
            return Err(parser.refuse("the end, `and`, `or` or an operator"));
        }
        match expression.is_truth() {
            true => Ok(Self(expression)),
            false => Err(parser.error(start, "a number", "a comparison")),
        }
    }

    /// The names in it, in order, each once.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.0.collect_names(&mut names);
        names
    }

    /// The number that it compares first, beside another; none if a name in it has no value, or if it cannot be
    /// computed.
    ///
    /// Of `0 < new < 10` that is `new`: a literal number is what something is compared with.
    #[must_use]
    pub fn quantity(&self, value: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        let is_computable = Cell::new(true);
        let values = Values { value, is_computable: &is_computable };
        let number = self.0.compared_first()?.number(&values)?;
        is_computable.get().then_some(number)
    }

    /// Whether it is true of these values; none if a name has none.
    ///
    /// A relation of which some number cannot be computed, such as `1 / 0`, is not true, nor is its opposite.
    #[must_use]
    pub fn holds(&self, value: &dyn Fn(&str) -> Option<f64>) -> Option<bool> {
        let is_computable = Cell::new(true);
        let holds = self.0.truth(&Values { value, is_computable: &is_computable })?;
        Some(holds && is_computable.get())
    }
}

/// The values of names, and whether all numbers made of them are finite.
struct Values<'a> {
    value: &'a dyn Fn(&str) -> Option<f64>,
    is_computable: &'a Cell<bool>,
}

impl Expression {
    fn is_truth(&self) -> bool {
        matches!(self, Self::Chain(..) | Self::Not(_) | Self::And(_) | Self::Or(_))
    }

    fn collect_names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Self::Number(_) => {}
            Self::Name(name) => {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
            Self::Negative(inner) | Self::Not(inner) => inner.collect_names(names),
            Self::Binary(_, left, right) => {
                left.collect_names(names);
                right.collect_names(names);
            }
            Self::Call(_, all) | Self::And(all) | Self::Or(all) => {
                all.iter().for_each(|inner| inner.collect_names(names));
            }
            Self::Chain(first, rest) => {
                first.collect_names(names);
                rest.iter().for_each(|(_, inner)| inner.collect_names(names));
            }
        }
    }

    fn number(&self, values: &Values<'_>) -> Option<f64> {
        let number = match self {
            Self::Number(number) => *number,
            Self::Name(name) => (values.value)(name)?,
            Self::Negative(inner) => -inner.number(values)?,
            Self::Binary(operator, left, right) => {
                let (left, right) = (left.number(values)?, right.number(values)?);
                match operator {
                    Operator::Plus => left + right,
                    Operator::Minus => left - right,
                    Operator::Times => left * right,
                    Operator::Over => left / right,
                }
            }
            Self::Call(function, all) => {
                let all: Option<Vec<f64>> = all.iter().map(|inner| inner.number(values)).collect();
                let all = all?;
                match function {
                    Function::Abs => all[0].abs(),
                    Function::Max => all.into_iter().fold(f64::NEG_INFINITY, f64::max),
                    Function::Min => all.into_iter().fold(f64::INFINITY, f64::min),
                }
            }
            _ => unreachable!("the parser takes no truth for a number"),
        };
        if !number.is_finite() {
            values.is_computable.set(false);
        }
        Some(number)
    }

    fn truth(&self, values: &Values<'_>) -> Option<bool> {
        let all = |inner: &[Self]| -> Option<Vec<bool>> {
            inner.iter().map(|inner| inner.truth(values)).collect()
        };
        Some(match self {
            Self::Chain(first, rest) => {
                let mut left = first.number(values)?;
                let mut holds = true;
                for (comparison, right) in rest {
                    let right = right.number(values)?;
                    holds &= comparison.holds(left, right);
                    left = right;
                }
                holds
            }
            Self::Not(inner) => !inner.truth(values)?,
            Self::And(inner) => all(inner)?.into_iter().all(|holds| holds),
            Self::Or(inner) => all(inner)?.into_iter().any(|holds| holds),
            _ => unreachable!("the parser takes no number for a truth"),
        })
    }
}

impl Expression {
    /// The first number of the first comparison that is no literal.
    fn compared_first(&self) -> Option<&Self> {
        match self {
            Self::Chain(first, rest) => {
                let mut all = std::iter::once(&**first).chain(rest.iter().map(|(_, other)| other));
                all.find(|number| !matches!(number, Self::Number(_)))
            }
            Self::Not(inner) => inner.compared_first(),
            Self::And(all) | Self::Or(all) => all.first()?.compared_first(),
            _ => None,
        }
    }
}

impl Comparison {
    fn holds(self, left: f64, right: f64) -> bool {
        let is_equal = left == right || (left - right).abs() <= EQUAL * left.abs().max(right.abs());
        match self {
            Self::Equal => is_equal,
            Self::Unequal => !is_equal,
            Self::Less => left < right && !is_equal,
            Self::AtMost => left < right || is_equal,
            Self::More => left > right && !is_equal,
            Self::AtLeast => left > right || is_equal,
        }
    }
}

// Reading.

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Word(String),
    Sign(&'static str),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Sign(sign) => write!(f, "`{sign}`"),
        }
    }
}

/// The longer ones first: `<=` is not `<` and `=`.
const SIGNS: [&str; 13] = ["==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "/", "(", ")", ","];

/// The tokens, each with the byte at which it begins.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, RelationError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let span = |fits: fn(char) -> bool| rest.find(|c| !fits(c)).unwrap_or(rest.len());
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let bad = |found: &str, expected| RelationError {
            text: text.to_owned(),
            at: text[..at].chars().count() + 1,
            found: format!("`{found}`"),
            expected,
        };
        let (token, length) = if first.is_ascii_digit() {
            let mut length = span(|c| c.is_ascii_digit() || c == '.');
            let digit = |at: usize| rest[at..].starts_with(|c: char| c.is_ascii_digit());
            if rest[length..].starts_with(['e', 'E']) {
                let sign = usize::from(rest[length + 1..].starts_with(['+', '-']));
                if digit(length + 1 + sign) {
                    let exponent = &rest[length + 1 + sign..];
                    let digits = exponent.find(|c: char| !c.is_ascii_digit());
                    length += 1 + sign + digits.unwrap_or(exponent.len());
                }
            }
            let number = rest[..length].parse().map_err(|_| bad(&rest[..length], "a number"))?;
            (Token::Number(number), length)
        } else if first.is_alphabetic() || first == '_' {
            let length = span(|c| c.is_alphanumeric() || c == '_' || c == '.');
            (Token::Word(rest[..length].to_owned()), length)
        } else {
            let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
            let sign = sign.ok_or_else(|| {
                bad(&first.to_string(), "a number, a name, a bracket or an operator")
            })?;
            (Token::Sign(sign), sign.len())
        };
        tokens.push((at, token));
        at += length;
    }
    Ok(tokens)
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(usize, Token)>,
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    /// The byte at which the next token begins.
    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.text.len(), |(at, _)| *at)
    }

    fn takes_sign(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Token::Sign(found)) if *found == sign);
        self.at += usize::from(is_it);
        is_it
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let is_it = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.at += usize::from(is_it);
        is_it
    }

    fn error(&self, at: usize, found: &str, expected: &'static str) -> RelationError {
        RelationError {
            text: self.text.to_owned(),
            at: self.text[..at].chars().count() + 1,
            found: found.to_owned(),
            expected,
        }
    }

    fn refuse(&self, expected: &'static str) -> RelationError {
        let found = self.peek().map_or("the end".to_owned(), Token::to_string);
        self.error(self.place(), &found, expected)
    }

    /// What `read` reads, if it is a truth, or else a number.
    fn of_kind(
        &mut self,
        is_truth: bool,
        read: fn(&mut Self) -> Result<Expression, RelationError>,
    ) -> Result<Expression, RelationError> {
        let start = self.place();
        let expression = read(self)?;
        match (expression.is_truth(), is_truth) {
            (false, true) => Err(self.error(start, "a number", "a comparison")),
            (true, false) => Err(self.error(start, "a comparison", "a number")),
            _ => Ok(expression),
        }
    }

    fn or(&mut self) -> Result<Expression, RelationError> {
        self.joined("or", Self::and, Expression::Or)
    }

    fn and(&mut self) -> Result<Expression, RelationError> {
        self.joined("and", Self::not, Expression::And)
    }

    /// One thing, or several with the word between them.
    fn joined(
        &mut self,
        word: &str,
        read: fn(&mut Self) -> Result<Expression, RelationError>,
        make: fn(Vec<Expression>) -> Expression,
    ) -> Result<Expression, RelationError> {
        let start = self.place();
        let first = read(self)?;
        if !matches!(self.peek(), Some(Token::Word(found)) if found == word) {
            return Ok(first);
        }
        if !first.is_truth() {
            return Err(self.error(start, "a number", "a comparison"));
        }
        let mut all = vec![first];
        while self.takes_word(word) {
            all.push(self.of_kind(true, read)?);
        }
        Ok(make(all))
    }

    fn not(&mut self) -> Result<Expression, RelationError> {
        if self.takes_word("not") {
            return Ok(Expression::Not(Box::new(self.of_kind(true, Self::not)?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expression, RelationError> {
        let start = self.place();
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.takes_comparison() {
            if first.is_truth() {
                return Err(self.error(start, "a comparison", "a number"));
            }
            rest.push((comparison, self.of_kind(false, Self::sum)?));
        }
        Ok(if rest.is_empty() { first } else { Expression::Chain(Box::new(first), rest) })
    }

    fn takes_comparison(&mut self) -> Option<Comparison> {
        let known = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ];
        known.into_iter().find(|(sign, _)| self.takes_sign(sign)).map(|(_, comparison)| comparison)
    }

    fn sum(&mut self) -> Result<Expression, RelationError> {
        self.operators(&[("+", Operator::Plus), ("-", Operator::Minus)], Self::product)
    }

    fn product(&mut self) -> Result<Expression, RelationError> {
        self.operators(&[("*", Operator::Times), ("/", Operator::Over)], Self::factor)
    }

    /// One thing, or several with operators of one rank, from the left.
    fn operators(
        &mut self,
        operators: &[(&str, Operator)],
        read: fn(&mut Self) -> Result<Expression, RelationError>,
    ) -> Result<Expression, RelationError> {
        let start = self.place();
        let mut left = read(self)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.takes_sign(sign)) {
            if left.is_truth() {
                return Err(self.error(start, "a comparison", "a number"));
            }
            let right = self.of_kind(false, read)?;
            left = Expression::Binary(*operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Expression, RelationError> {
        if self.takes_sign("-") {
            return Ok(Expression::Negative(Box::new(self.of_kind(false, Self::factor)?)));
        }
        if self.takes_sign("(") {
            let inner = self.or()?;
            return match self.takes_sign(")") {
                true => Ok(inner),
                false => Err(self.refuse("`)`, or more of what stands in the bracket")),
            };
        }
        let start = self.place();
        match self.peek().cloned() {
            Some(Token::Number(number)) => {
                self.at += 1;
                Ok(Expression::Number(number))
            }
            Some(Token::Word(word)) if !matches!(word.as_str(), "and" | "or" | "not") => {
                self.at += 1;
                match self.takes_sign("(") {
                    true => self.call(&word, start),
                    false => Ok(Expression::Name(word)),
                }
            }
            _ => Err(self.refuse("a number, a name or a bracket")),
        }
    }

    /// The numbers behind `name(`.
    fn call(&mut self, name: &str, start: usize) -> Result<Expression, RelationError> {
        let Some((_, function, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name)
        else {
            return Err(self.error(start, &format!("`{name}(`"), "`abs(`, `max(` or `min(`"));
        };
        let mut all = vec![self.of_kind(false, Self::sum)?];
        while self.takes_sign(",") {
            all.push(self.of_kind(false, Self::sum)?);
        }
        if !self.takes_sign(")") {
            return Err(self.refuse("`,` or `)`"));
        }
        match (*least..=*most).contains(&all.len()) {
            true => Ok(Expression::Call(*function, all)),
            false => Err(self.error(start, &format!("{} numbers", all.len()), "one number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str) -> Option<bool> {
        let value = |name: &str| match name {
            "base" => Some(200.0),
            "new" => Some(50.0),
            "zero" => Some(0.0),
            _ => None,
        };
        Relation::parse(text).unwrap().holds(&value)
    }

    #[test]
    fn relations_read_as_mathematics_does() {
        for text in [
            "base > 100 and new == 50",
            "1 + 2 * 3 == 7",
            "(1 + 2) * 3 == 9",
            "8 / 2 / 2 == 2",
            "10 - 2 - 3 == 5",
            "-new < -2 * 2 and - -1 == 1",
            "1 - new / base == 0.75",
            "max(1, new, 2) == 50 and min(base, new) == new and abs(new - base) == 150",
            "0 < new < base <= 200",
            "not new > base",
            "new > base or base > new",
            "new > base and base > new or base == 200",
            "(base == 200 or new == 1) and 1e3 == 1000 and 2.5e-1 == 0.25",
            "0.1 + 0.2 == 0.3",
        ] {
            assert_eq!(holds(text), Some(true), "{text}");
        }
        for text in
            ["new > base", "0 < new < 10", "base == 200 and not new == 50", "0.1 + 0.2 > 0.3"]
        {
            assert_eq!(holds(text), Some(false), "{text}");
        }
    }

    #[test]
    fn what_has_no_value_leaves_it_open_and_what_cannot_be_computed_is_false() {
        assert_eq!(holds("unheard > 1"), None);
        assert_eq!(holds("new == 1 and unheard > 1"), None, "whatever else is known");
        for comparison in ["==", "<", ">", "<=", ">="] {
            assert_eq!(holds(&format!("zero / zero {comparison} 1")), Some(false), "{comparison}");
        }
        // Nor its opposite, nor beside what is true; and beyond all numbers is not more than a number.
        for text in [
            "zero / zero != 1",
            "not zero / zero > 1",
            "base / zero > 1",
            "base / zero >= 1e4",
            "0.1 <= -base / zero",
            "0.1 <= base / zero <= 0.7",
            "max(base / zero, 1) >= 1",
            "base == 200 or base / zero > 1",
        ] {
            assert_eq!(holds(text), Some(false), "{text}");
        }
    }

    #[test]
    fn the_quantity_is_what_is_compared_first_and_no_literal() {
        let quantity = |text: &str| {
            let value = |name: &str| match name {
                "base" => Some(200.0),
                "new" => Some(50.0),
                "zero" => Some(0.0),
                _ => None,
            };
            Relation::parse(text).unwrap().quantity(&value)
        };
        for (text, expected) in [
            ("new / base >= 0.5", Some(0.25)),
            ("0 < new < 10", Some(50.0)),
            ("not (base > 1 or new > 1)", Some(200.0)),
            ("base == 0 and new == 0", Some(200.0)),
            ("base / zero > 1", None),
            ("unheard > 1", None),
        ] {
            assert_eq!(quantity(text), expected, "{text}");
        }
    }

    #[test]
    fn names_come_in_order_and_once() {
        let relation = Relation::parse("max(b, a) > 4 * abs(a - c) and b.d == 1").unwrap();
        assert_eq!(relation.names(), ["b", "a", "c", "b.d"]);
    }

    #[test]
    fn what_is_no_relation_is_told_with_its_place() {
        for (text, expected) in [
            ("", "character 1: found the end, expected a number"),
            ("base", "character 1: found a number, expected a comparison"),
            ("base >", "character 7: found the end, expected a number, a name or a bracket"),
            ("base > 1 new", "character 10: found `new`, expected the end"),
            ("(base > 1", "character 10: found the end, expected `)`"),
            ("base => 1", "character 6: found `=`, expected"),
            ("sqrt(base) > 1", "character 1: found `sqrt(`, expected `abs(`"),
            ("abs(base, new) > 1", "character 1: found 2 numbers, expected one number"),
            ("(base > 1) + 2 > 1", "character 1: found a comparison, expected a number"),
            ("base and new > 1", "character 1: found a number, expected a comparison"),
            ("1.2.3 > base", "character 1: found `1.2.3`, expected a number"),
            ("a < b; c < d", "character 6: found `;`, expected"),
            ("no direction required", "character 4: found `direction`, expected the end"),
        ] {
            let error = Relation::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
