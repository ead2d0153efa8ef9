package generalize

import (
	"bytes"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ortet/ortet/internal/node/tree"
)

// donorLines returns the lines of a file, counted from 0, that make a node the donor.
type donorLines func(data []byte, donor facts) map[int]bool

// dropLines changes a file by a row's lines, and leaves all others byte for byte.
func (c *cleaner) dropLines(at string, find donorLines) (tree.Count, error) {
	return c.rewrite(at, func(lines []string) []string {
		return without(lines, find([]byte(strings.Join(lines, "\n")), c.donor))
	})
}

func without(lines []string, drop map[int]bool) []string {
	var kept []string
	for i, l := range lines {
		if !drop[i] {
			kept = append(kept, l)
		}
	}
	if drop[len(lines)-1] { // it had no end of line, and the line before has one
		kept = append(kept, "")
	}
	return kept
}

// blank returns a file as the scan of a tree that is not changed sees it: the lines that
// a row would drop are blanks, and all others where they were.
func (s *scanner) blank(p piece) []byte {
	if !s.o.DryRun && !s.o.Inspect || !p.Whole {
		return p.Data
	}
	for _, row := range s.lineRows {
		if ok, err := path.Match(row.Path, "/"+p.Path); err != nil || !ok {
			continue
		}
		lines := bytes.Split(bytes.Clone(p.Data), []byte("\n"))
		for i := range row.lines(p.Data, s.donor) {
			lines[i] = bytes.Repeat([]byte(" "), len(lines[i]))
		}
		return bytes.Join(lines, []byte("\n"))
	}
	return p.Data
}

// Options of k3s and RKE2 that make a node the donor. with-node-id is none: the id is in
// /etc/rancher/node, and a clone makes its own.
const (
	nodeNameKey       = "node-name"
	nodeIPKey         = "node-ip"
	nodeExternalIPKey = "node-external-ip"
)

// isDonors reports whether an option's value is the donor's and nothing else.
func isDonors(key, value string, donor facts) bool {
	if key == nodeNameKey {
		return donor.isName(value)
	}
	return !slices.ContainsFunc(strings.Split(value, ","), func(text string) bool {
		a, err := netip.ParseAddr(strings.TrimSpace(text))
		return err != nil || !donor.hasAddress(a)
	})
}

// donorOptions returns the lines of a k3s or RKE2 configuration that set the donor's name
// or addresses. A value that is not whole on those lines stays: what is left is read again,
// and has to be the rest.
func donorOptions(data []byte, donor facts) map[int]bool {
	options, ok := topMapping(data)
	if !ok {
		return nil
	}
	drop, rest := map[int]bool{}, yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(options.Content); i += 2 {
		key, value := options.Content[i], options.Content[i+1]
		name := strings.TrimSuffix(key.Value, "+") // appends to other files' values
		if name != nodeNameKey && name != nodeIPKey && name != nodeExternalIPKey {
			rest.Content = append(rest.Content, key, value)
			continue
		}
		values := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			values = value.Content
		}
		stay := slices.DeleteFunc(slices.Clone(values), func(v *yaml.Node) bool {
			return v.Kind == yaml.ScalarNode && isDonors(name, v.Value, donor)
		})
		for _, v := range values {
			if !slices.Contains(stay, v) {
				drop[v.Line-1] = true
			}
		}
		switch {
		case len(stay) > 0 && value.Kind == yaml.SequenceNode:
			part := *value
			part.Content = stay
			rest.Content = append(rest.Content, key, &part)
		case len(stay) > 0:
			rest.Content = append(rest.Content, key, value)
		case len(values) > 0:
			drop[key.Line-1] = true
		}
	}
	left, ok := topMapping([]byte(strings.Join(without(strings.Split(string(data), "\n"), drop), "\n")))
	if !ok || !slices.EqualFunc(left.Content, rest.Content, same) {
		return nil
	}
	return drop
}

// topMapping returns the options of a configuration; one without any is empty.
func topMapping(data []byte) (*yaml.Node, bool) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, false
	}
	if doc.Kind == 0 || doc.Content[0].Tag == "!!null" {
		return &yaml.Node{Kind: yaml.MappingNode}, true
	}
	return doc.Content[0], doc.Content[0].Kind == yaml.MappingNode
}

// same reports whether two nodes are alike but for their places and comments.
func same(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.Tag == b.Tag && a.Value == b.Value && a.Anchor == b.Anchor && slices.EqualFunc(a.Content, b.Content, same)
}

var nodeNameVar = regexp.MustCompile(`^\s*(?:K3S|RKE2)_NODE_NAME=(.*)$`)

// donorVariables returns the lines of an environment file that set the donor's name.
func donorVariables(data []byte, donor facts) map[int]bool {
	drop := map[int]bool{}
	for i, line := range strings.Split(string(data), "\n") {
		if m := nodeNameVar.FindStringSubmatch(line); m != nil && donor.isName(strings.Trim(strings.TrimSpace(m[1]), `'"`)) {
			drop[i] = true
		}
	}
	return drop
}
