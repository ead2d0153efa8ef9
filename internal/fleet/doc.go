// Package fleet holds the nouns that every room shares: pools, instances,
// donors, image versions, models, the changes that can be asked of the cloud,
// and the one error type with its kinds. It has no behaviour beyond parsing and
// comparing, and imports the standard library only.
package fleet
