//! The hub's GitHub client against the test forge: GitHub's API, held to its published schema, over real git.

#[cfg(test)]
mod amending;
#[cfg(test)]
mod app;
#[cfg(test)]
mod bed;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod closing;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod whose;
