package architecture

import (
	"go/ast"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ortet/ortet/internal/cli"
)

// foreign are flags of other programs that pages and messages name without the program.
var foreign = map[string]string{
	"az":                 "force-update instance-ids protect-from-scale-in protect-from-scale-set-actions",
	"cluster-autoscaler": "max-node-provision-time scale-down-unready-time startup-taint",
	"elastic-agent":      "delay-enroll",
	"helm":               "set set-file",
	"iptables":           "comment",
	"k3s":                "disable-agent token with-node-id",
	"kubeadm":            "certificate-key",
	"kubectl":            "cluster validate",
	"kubelet":            "cert-dir cloud-provider config-dir hostname-override image-credential-provider-bin-dir node-ip node-labels root-dir",
	"kured":              "annotate-nodes",
	"NVIDIA's installer": "kernel-name",
	"systemd-run":        "description",
	"tailscaled":         "force-reauth no-logs-no-support tun",
	"any program":        "flags",
}

// A command is a program of ours, or a command below one.
type command struct {
	flags map[string]bool // by name; true if a value follows
	below map[string]*command
}

// programs reads the tree of ortet, and the help of the others.
func programs(t *testing.T) map[string]*command {
	t.Helper()
	root := cli.Command(cli.Process{Getenv: func(string) string { return "" }})
	root.InitDefaultHelpCmd()
	bin := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", bin+"/", "../../cmd/ortet-node", "../../cmd/azsim").CombinedOutput(); err != nil {
		t.Fatalf("build ortet-node and azsim: %v\n%s", err, out)
	}
	return map[string]*command{"ortet": commandOf(root), "ortet-node": commandByHelp(t, bin, "ortet-node"), "azsim": commandByHelp(t, bin, "azsim")}
}

func commandOf(c *cobra.Command) *command {
	it := &command{map[string]bool{"help": false, "version": false}, map[string]*command{}}
	add := func(f *pflag.Flag) { it.flags[f.Name] = f.NoOptDefVal == "" }
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	for _, sub := range c.Commands() {
		it.below[sub.Name()] = commandOf(sub)
	}
	return it
}

var (
	helpFlag    = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z-]+)( [^ \n])?`)
	helpCommand = regexp.MustCompile(`(?m)^  ([a-z-]+)  +\S`)
)

// commandByHelp reads "Usage: PATH a|b [FLAGS]", and the list after "Commands:".
func commandByHelp(t *testing.T, bin, path string) *command {
	t.Helper()
	args := strings.Fields(path)
	out, err := exec.CommandContext(t.Context(), filepath.Join(bin, args[0]), append(args[1:], "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v\n%s", path, err, out)
	}
	it := &command{map[string]bool{"help": false, "version": false}, map[string]*command{}}
	for _, m := range helpFlag.FindAllStringSubmatch(string(out), -1) {
		it.flags[m[1]] = m[2] != ""
	}
	_, usage, _ := strings.Cut(string(out), "Usage: "+path+" ")
	usage, _, _ = strings.Cut(usage, " ")
	names := strings.Split(usage, "|")
	if len(names) == 1 { // [FLAGS]
		_, list, _ := strings.Cut(string(out), "Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		names = nil
		for _, m := range helpCommand.FindAllStringSubmatch(list, -1) {
			names = append(names, m[1])
		}
	}
	for _, name := range names {
		if name != "help" {
			it.below[name] = commandByHelp(t, bin, path+" "+name)
		}
	}
	return it
}

// has reports whether the command, or any below it, has a flag.
func (c *command) has(flag string) bool {
	_, ok := c.flags[flag]
	for _, sub := range c.below {
		ok = ok || sub.has(flag)
	}
	return ok
}

var (
	plainWord = regexp.MustCompile(`^[a-z][a-z-]+$`)
	// sentence is what follows a program's name where a sentence is about the program.
	sentence = regexp.MustCompile(`^(?:[a-z]+s|also|always|and|began|callback|did|for|in|it|made|may|of|on|panicked|that|with|wrote)$`)
)

// wrong follows the words after a program's name, and says which of them the program does not
// have. In prose, they may be a sentence's.
func (c *command) wrong(path, line string, prose bool) string {
	words, arguments := strings.Fields(line), false
	for i := 0; i < len(words); i++ {
		word := strings.Trim(words[i], "\"'`.,:;…[]")
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, hasValue := strings.Cut(name, "=")
		value, known := c.flags[name]
		switch {
		case isFlag && !plainWord.MatchString(name): // "--": another program's words follow
			return ""
		case isFlag && !known:
			return path + " has no flag --" + name
		case isFlag && value && !hasValue || strings.HasPrefix(word, "-") && !isFlag: // short flags take values
			i++
		case isFlag || arguments:
		case c.below[word] != nil:
			c, path = c.below[word], path+" "+word
		case prose && sentence.MatchString(word):
			return ""
		case len(c.below) > 0 && plainWord.MatchString(word):
			return path + " has no command " + word
		default:
			arguments = true
		}
		if i < len(words) && !isFlag && strings.ContainsAny(words[i][len(words[i])-1:], ".,;:'`\"") {
			return ""
		}
	}
	return ""
}

var (
	// called is a program of ours where a shell looks for a command, and made a call of make.
	called = regexp.MustCompile(`(?:^|[|;&(!]|\b(?:sudo|exec|xargs|time|env|do|then|if)\s|--\s|[A-Z_]+=\S*\s)\s*(?:\$ )?(?:[\w./~-]+/)?(ortet|ortet-node|azsim)( [^|;&<>()#\n]*)`)
	made   = regexp.MustCompile(`(?:^|[;&] ?|[A-Z_]+=\S*\s)(?:\$ )?make((?: +[\w.=/:-]+)+)`)
	target = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	inline = regexp.MustCompile("`([^`\n]+)`")
	gone   = regexp.MustCompile(`(?m)^- .*\bgone\b.*$`)
	value  = regexp.MustCompile(`^(?:admission|controller|kamino|operator|ortet)\.([a-zA-Z]+(?:\.[a-zA-Z]+)*)(?:$|=)`)
	// mentioned is a program of ours in a message, and asked what stands before one to type.
	mentioned = regexp.MustCompile(`(?:^|[^\w/.-])(ortet|ortet-node|azsim)( [^()"\n]*)`)
	asked     = regexp.MustCompile("(?:[`'\"]|\\b(?:[Rr]un|[Ss]ee|[Uu]se|with) )$")
	anyFlag   = regexp.MustCompile("(?:^|[\\s('\"\\[`])--([a-z][a-z0-9-]+)")
	// others are programs whose flags follow them.
	others = regexp.MustCompile(`(?:\b(?:az|cloud-init|dpkg|helm|journalctl|kubeadm|kubectl|mount|passwd)\b|systemd-)[^;]*$|var\($`)
)

// What somebody types from a page or a message has to work.
func TestCommandsThatAreNamedExist(t *testing.T) {
	ours := programs(t)
	lone := func(where, flag, text string) {
		for _, c := range ours {
			if c.has(flag) {
				return
			}
		}
		for _, flags := range foreign {
			if slices.Contains(strings.Fields(flags), flag) {
				return
			}
		}
		t.Errorf("%s: no program of ours has the flag --%s; if it is another's, add it to foreign: %s", where, flag, strings.TrimSpace(text))
	}
	makefile := read(t, "Makefile")
	schemas := read(t, "charts/ortet/values.schema.json") + read(t, "charts/vmss-prototype/values.schema.json")
	code := func(page, code, line string) {
		for _, m := range called.FindAllStringSubmatch(code, -1) {
			if wrong := ours[m[1]].wrong(m[1], m[2], false); wrong != "" {
				t.Errorf("%s: %s: %s", page, wrong, code)
			}
		}
		for _, m := range made.FindAllStringSubmatch(code, -1) {
			for _, word := range strings.Fields(m[1]) {
				name, _, set := strings.Cut(word, "=")
				if set && !regexp.MustCompile(`\b`+name+`\b`).MatchString(makefile) || !set && !slices.ContainsFunc(target.FindAllStringSubmatch(makefile, -1), func(m []string) bool { return m[1] == word }) {
					t.Errorf("%s: the Makefile has no %s: %s", page, name, code)
				}
			}
		}
		if m := anyFlag.FindStringSubmatch(code); m != nil && strings.HasPrefix(code, "--") {
			lone(page, m[1], line)
		}
		if m := value.FindStringSubmatch(code); m != nil && page != "docs/reference/timeline.md" && !strings.HasSuffix(m[0], ".yaml") { // there are attributes of spans
			for key := range strings.SplitSeq(m[1], ".") {
				if !strings.Contains(schemas, `"`+key+`"`) {
					t.Errorf("%s: no chart of ours has the value %s: %s", page, key, code)
				}
			}
		}
	}
	for _, page := range tracked(t, "*.md") {
		if strings.Contains(page, "/testdata/") {
			continue // what a test reads is nobody's documentation
		}
		text := read(t, page)
		if page == "CHANGELOG.md" { // it names what is gone, and what releases had
			_, text, _ = strings.Cut(text, "\n## Unreleased\n")
			text, _, _ = strings.Cut(text, "\n## ")
			text = gone.ReplaceAllString(text, "")
		}
		for _, block := range fence.FindAllString(text, -1) {
			for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
				code(page, strings.TrimSpace(line), line)
			}
		}
		for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
			for _, span := range inline.FindAllStringSubmatch(line, -1) {
				code(page, span[1], line)
			}
		}
	}
	message := func(where, text string) {
		for _, m := range mentioned.FindAllStringSubmatchIndex(text, -1) {
			name := text[m[2]:m[3]]
			if wrong := ours[name].wrong(name, text[m[4]:m[5]], !asked.MatchString(text[:m[2]])); wrong != "" {
				t.Errorf("%s: %s: %q", where, wrong, text)
			}
		}
		for _, m := range anyFlag.FindAllStringSubmatchIndex(text, -1) {
			if strings.Contains(text, " ") && !others.MatchString(text[:m[2]-2]) {
				lone(where, text[m[2]:m[3]], text)
			}
		}
	}
	for _, folder := range []string{"internal", "cmd", "azsim", "charts", "hack"} {
		literals(t, folder, func(_ []ast.Node, text string) { message(folder, text) })
	}
	for _, notes := range tracked(t, "charts/*/templates/NOTES.txt") {
		message(notes, read(t, notes))
	}
}
