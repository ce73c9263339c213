//! The codes that scripts reply with: an enum whose variants have their number, their name in Lua and their meaning in
//! one place.

/// Declares an enum of codes. They are numbered from 0 in the order of the list.
macro_rules! answers {
    ($(#[$doc:meta])* $enum:ident { $($(#[$meaning:meta])* $variant:ident = $lua:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $enum {
            $($(#[$meaning])* $variant,)+
        }

        impl $enum {
            /// All of them in the order of their numbers, with their names in Lua.
            pub const ALL: &[($enum, &str)] = &[$(($enum::$variant, $lua)),+];

            /// The answer of a number.
            pub fn from_code(code: i64) -> Option<$enum> {
                $enum::ALL.get(usize::try_from(code).ok()?).map(|(answer, _)| *answer)
            }
        }
    };
}
pub(crate) use answers;
