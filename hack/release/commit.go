package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// versions are the two forms of a release's version.
type versions struct {
	// tag is what git describe prints, and what programs report: v0.1.0.
	tag string
	// number is a semantic version without v, for packages, charts and file names.
	number string
	// released is whether the commit has a tag that is a version.
	released bool
}

// readCommit refuses a checkout with changes, and reads the commit's version and time.
func (r *release) readCommit(ctx context.Context) error {
	changed, err := r.run(ctx, nil, "git", "status", "--porcelain", "--untracked-files=all")
	if err != nil {
		return err
	}
	if changed != "" {
		return errors.New("release this checkout: it has changes; commit, stash or remove them:\n" + changed)
	}
	described, err := r.run(ctx, nil, "git", "describe", "--tags", "--always", "--abbrev=12", "--match=v[0-9]*")
	if err != nil {
		return err
	}
	r.version = versionOf(described)
	if !r.version.released {
		r.note("%s is no tag of a version: packages and charts get %s, which is no release", described, r.version.number)
	}
	if r.registry == "" {
		r.note("no REGISTRY: --image of ortet has no default, and the charts name no image")
	}
	seconds, err := r.run(ctx, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("read time of the commit: %w", err)
	}
	r.commit = time.Unix(at, 0).UTC()
	if r.download == "" {
		r.download = project + "/releases/download/" + r.version.tag
	}
	r.download = strings.TrimSuffix(r.download, "/")
	return nil
}

var (
	semantic = regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.-]+)?$`)
	between  = regexp.MustCompile(`^(.+)-(\d+)-(g[0-9a-f]+)$`)
)

// versionOf makes of what git describe prints a version that semver, deb and rpm sort
// as Git does: commits after v0.1.0 lie before 0.1.1, and those after v0.2.0-rc.1
// before v0.2.0-rc.2. A commit without a tag lies before all.
func versionOf(described string) versions {
	tag, commits := described, ""
	if parts := between.FindStringSubmatch(described); parts != nil {
		tag, commits = parts[1], parts[2]+"."+parts[3]
	}
	v := semantic.FindStringSubmatch(tag)
	switch {
	case v == nil && commits == "":
		return versions{described, "0.0.0-dev.g" + strings.TrimPrefix(described, "g"), false}
	case v == nil:
		return versions{described, "0.0.0-dev." + commits, false}
	case commits == "":
		return versions{described, strings.TrimPrefix(tag, "v"), true}
	case v[4] != "":
		return versions{described, strings.TrimPrefix(tag, "v") + ".dev." + commits, false}
	}
	patch, _ := strconv.Atoi(v[3])
	return versions{described, fmt.Sprintf("%s.%s.%d-dev.%s", v[1], v[2], patch+1, commits), false}
}
