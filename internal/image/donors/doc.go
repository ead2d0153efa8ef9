// Package donors ranks the nodes of a pool by how well each serves as the donor of the
// pool's next image, and decides whether that is due. It is pure: what is known of the
// pool goes in, a Choice comes out.
//
// The rules are one table, [Rules]. Those of Kamino are those of kamino's
// vmss-prototype, whose users find their values' meaning unchanged. Ours come on top,
// and each can be switched off; one of ours whose facts are not known disqualifies no
// node, and is named in Unknown.
//
// # When a new image is due
//
// With Policy.PatchAnnotation, each candidate has been patched since the newest
// version: the annotation's date is later than the version's. Dates are compared, so
// the same day is not newer, and a date in the future never qualifies. Where too few
// nodes are, MaxImageAge is set, and the newest version is more than that many days old
// (or the pool has none), the rule is left out, for a date in the future too.
//
// Without it, an image is due where the pool has no version, or its newest is more
// than MaxImageAge days old.
package donors
