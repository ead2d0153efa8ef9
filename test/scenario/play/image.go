package play

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/ortet/ortet/internal/fleet"
	"github.com/ortet/ortet/internal/prototype"
	"github.com/ortet/ortet/test/scenario"
)

// allowed is what of secrets a capture may leave in its image.
type allowed struct {
	AcceptPoolCredentials, RemoveSecrets bool
	AcceptSecrets                        []string
	Bootstrap                            string
}

func (a allowed) accepts(at string) bool {
	return slices.ContainsFunc(a.AcceptSecrets, func(s string) bool {
		return s == "/"+at || strings.HasSuffix(s, "/") && strings.HasPrefix("/"+at, s)
	})
}

// judgeInspected: an inspection leaves the donor's disk as it was, byte for byte.
func (w *world) judgeInspected(pod string, before *content, after map[string]entry) {
	for _, at := range slices.Sorted(maps.Keys(before.files)) {
		if is, there := after[at]; !there || is != before.files[at] {
			w.broken("pod %s inspects the donor, and changes /%s on it", pod, at)
		}
	}
	for _, at := range slices.Sorted(maps.Keys(after)) {
		if _, there := before.files[at]; !there {
			w.broken("pod %s inspects the donor, and makes /%s on it", pod, at)
		}
	}
}

// judgeImage looks at the disk that a version is about to be made of: nothing by which a
// clone could be the donor, no secret that was not accepted, all that is nobody's, and
// something to join by.
func (w *world) judgeImage(p *process, rec open, version string, source fleet.ResourceID, tags map[string]*string) {
	w.mu.Lock()
	var c *content
	if d := w.disks[volume(source)]; d != nil {
		c = w.contentOf(d)
	}
	w.mu.Unlock()
	var may allowed
	if c == nil || json.Unmarshal(rec.Request, &may) != nil {
		return
	}
	may.AcceptPoolCredentials = may.AcceptPoolCredentials && w.accepts()
	customData := w.pointedAt().customData
	if text, err := base64.StdEncoding.DecodeString(customData); err == nil {
		customData = string(text)
	}
	if sum := tags[fleet.TagCustomData]; sum != nil && *sum == noopSum() {
		customData = prototype.NoopCustomData
	} else if sum != nil && *sum != "" {
		customData = firstCustomData // what was kept under another sum joins as well
	}
	for _, wrong := range c.wrongInImage(may, customData != prototype.NoopCustomData && customData != "") {
		w.broken("%s makes version %s of a disk %s", p.name, version, wrong)
	}
}

// wrongInImage says what of a disk may not be in an image, by what the world put there. joined
// tells that its clones get customData by which they join.
func (c *content) wrongInImage(may allowed, joined bool) (all []string) {
	at := slices.Sorted(maps.Keys(c.files))
	inState := func(file string) bool { return strings.HasPrefix(file, "etc/") || strings.HasPrefix(file, "var/lib/") }
	find := func(value string, in func(file string) bool) (file string, found bool) {
		i := slices.IndexFunc(at, func(file string) bool { return in(file) && strings.Contains(c.files[file].data, value) })
		if i < 0 {
			return "", false
		}
		return at[i], true
	}
	everywhere := func(string) bool { return true }
	for _, p := range c.plants {
		file, found, why := "", false, ""
		_, there := c.files[p.path]
		switch p.class {
		case identity:
			file, found = find(p.value, everywhere)
			why = "that has the donor's identity: " + p.what
		case trace:
			file, found = find(p.value, inState)
			why = "that names the donor: " + p.what
		case gone:
			file, found, why = p.path, there, "that a first boot takes for the donor's: "+p.what
		case rejoins:
			file, found, why = p.path, there && joined, "on which clones cannot join: "+p.what
		case shared:
			file, found = find(p.value, func(string) bool { return !may.AcceptPoolCredentials })
			why = "with a credential of the pool that was not accepted: " + p.what
		case private:
			file, found = find(p.value, func(file string) bool { return !may.accepts(file) })
			why = "with a secret that was not accepted: " + p.what
		case stays:
			file, found, why = p.path, !c.holds(p), "that lacks what is nobody's: "+p.what
		}
		if found {
			all = append(all, why+", at /"+file)
		}
	}
	if id, there := c.files["etc/machine-id"]; !there || id.data != "" {
		all = append(all, "on which /etc/machine-id is not empty, and a clone's first boot is no first boot or has the donor's")
	}
	if !joined && !c.joinsAlone() {
		all = append(all, "by which no clone joins, for clones without customData")
	}
	if c.preserve {
		all = append(all, "on which cloud-init keeps the donor's name")
	}
	return all
}

// diskReasons gives the codes of what the disk of the donor that is asked for is a reason
// to refuse for; scanned, where only a scan finds it.
func (w *world) diskReasons(ask scenario.Ask) (codes []string, scanned bool) {
	if d := w.story.Donor.Disk; ask.Verb == scenario.Capture && !w.hasFiles() {
		switch {
		case d == "preserve":
			return []string{"DiskRefused"}, false
		case d == "secrets" && !ask.Accept:
			return []string{"PoolCredentials"}, true
		}
	}
	c := w.contentOfNode(w.nodeOf(ask.Node))
	if ask.Verb != scenario.Capture || c == nil {
		return nil, false
	}
	if c.preserve || ask.Bake && !c.joinsAlone() {
		return []string{"DiskRefused"}, false
	}
	may := allowed{AcceptPoolCredentials: ask.Accept, RemoveSecrets: ask.RemoveSecrets, AcceptSecrets: w.acceptedPaths(ask)}
	served, noopText := w.pointedAt().customData, base64.StdEncoding.EncodeToString([]byte(prototype.NoopCustomData))
	add := func(code string) {
		if !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	for _, p := range c.plants {
		_, flagged := c.files["var/lib/kubelet/kubeadm-flags.env"]
		goes := p.path == bootstrapKubelet && flagged && !ask.Bake
		if p.path == bootstrapKubelet && goes && c.unserved && (served == noopText || w.bootstraps()) {
			add("CannotJoin")
		}
		switch {
		case p.value == "" || !c.holds(p):
		case p.stray:
			add("IdentityOnDisk")
		case p.class == shared && !ask.Accept && !goes:
			add("PoolCredentials")
		case p.class == private && !may.accepts(p.path) && (!may.RemoveSecrets || p.needs):
			add("OtherSecrets")
		}
	}
	slices.Sort(codes)
	return codes, true
}

// diskForbids reports whether the disk of the donor is a reason to refuse, seen before or not.
func (w *world) diskForbids(ask scenario.Ask) bool {
	codes, _ := w.diskReasons(ask)
	return len(codes) > 0 || !w.hasFiles() && w.story.Donor.Disk == "nojoin" && ask.Bake
}

// losesInspection reports whether the pod that inspects a node ends without a report. It
// does in a third of the worlds where its scan would find a reason to refuse.
func (w *world) losesInspection(node string) bool {
	c := w.contentOfNode(node)
	risky := c != nil && !c.preserve && slices.ContainsFunc(c.plants, func(p plant) bool {
		return (p.stray || p.class == shared || p.class == private) && c.holds(p)
	})
	return risky && !w.seenBefore()
}

// acceptedPaths are what an operator names with --accept-secret: of as many of the other
// secrets on the donor as is asked, the file or its folder.
func (w *world) acceptedPaths(ask scenario.Ask) (paths []string) {
	c := w.contentOfNode(w.nodeOf(ask.Node))
	if c == nil {
		return nil
	}
	for i, p := range c.some(private) {
		at := "/" + p.path
		if w.hash("accept a folder", p.path)%3 == 0 {
			at = at[:strings.LastIndex(at, "/")+1]
		}
		if i < ask.AcceptSecrets && !slices.Contains(paths, at) {
			paths = append(paths, at)
		}
	}
	return paths
}
