//! Changes on GitLab's API over real git repositories, made as the hub makes them: `Forges` gives the client, `make` does
//! the work.

#[cfg(test)]
mod amending;
#[cfg(test)]
mod bed;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod closing;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod follow;
#[cfg(test)]
mod merging;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod people;
#[cfg(test)]
mod question;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod third_party;
#[cfg(test)]
mod whose;
