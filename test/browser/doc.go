// Package browser looks at the page of a boot (internal/boots/timeline/draw) as a person
// does: in Chromium, without a window, with mouse and keys.
//
// Nothing is served: pages are files, and a page that asks anybody for anything
// fails. The pages are written by that package's own test, in the module around
// this one, so that this module need not follow its dependencies. Screenshots in
// docs/img are of here: go test -update writes them anew.
package browser
