//! Changes on a real Gitea server, made as the hub makes them: `Forges` gives the client, `make` does the work.

#[cfg(test)]
mod amending;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod bed;
#[cfg(test)]
mod changes;
#[cfg(test)]
mod closing;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod patches;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod whose;
