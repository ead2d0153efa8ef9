package azure_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ortet/ortet/internal/azure"
	"github.com/ortet/ortet/internal/fleet"
)

const permissionsDoc = "../../docs/reference/azure-permissions.md"

// The documentation says what the code does. With the argument "update" the test
// writes its tables again.
func TestPermissionsAreDocumented(t *testing.T) {
	update := slices.Contains(flag.Args(), "update")
	data, err := os.ReadFile(permissionsDoc)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	for name, text := range map[string]string{
		"changes": changesTable(azure.Changes()), "canary": changesTable(azure.CanaryChanges()), "joins": list(azure.JoinActions()), "reads": list(azure.ReadActions()),
		"boots": list(azure.BootActions()), "members": list(azure.MemberActions()), "configuration": list(azure.ConfigurationActions()), "subscription": list(azure.SubscriptionReadActions()), "role": role(t, "Ortet", azure.ActionsOf(azure.Changes()...)),
		"flexible role": role(t, "Ortet on Flexible pools", azure.OfFlexible(azure.ActionsOf(azure.Changes()...))),
	} {
		head, rest, ok := strings.Cut(want, "<!-- "+name+" -->\n")
		_, tail, end := strings.Cut(rest, "<!-- end -->")
		if !ok || !end {
			t.Fatalf("%s: no place for %s", permissionsDoc, name)
		}
		want = head + "<!-- " + name + " -->\n" + text + "<!-- end -->" + tail
	}
	if want == string(data) {
		return
	}
	if !update {
		t.Fatalf("%s is not what the code needs: run go test ./internal/azure -run Documented -args update", permissionsDoc)
	}
	if err := os.WriteFile(permissionsDoc, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func changesTable(changes []fleet.Change) string {
	var b strings.Builder
	b.WriteString("| change | actions (`Microsoft.Compute/`…) |\n|---|---|\n")
	for _, ch := range changes {
		var short []string
		for _, a := range azure.Actions(ch.Verb()) {
			short = append(short, "`"+strings.TrimPrefix(a, "Microsoft.Compute/")+"`")
		}
		fmt.Fprintf(&b, "| %s | %s |\n", ch.Verb(), strings.Join(short, ", "))
	}
	return b.String()
}

func list(actions []string) string {
	var b strings.Builder
	for _, a := range actions {
		fmt.Fprintf(&b, "- `%s`\n", a)
	}
	return b.String()
}

func role(t *testing.T, name string, actions []string) string {
	t.Helper()
	actions = append(actions, azure.SubscriptionReadActions()...)
	slices.Sort(actions)
	data, err := json.MarshalIndent(map[string]any{
		"Name": name, "Description": "Capture prototypes of scale sets' nodes", "Actions": actions,
		"AssignableScopes": []string{"/subscriptions/<subscription>"},
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return "```json\n" + strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(data)) + "\n```\n"
}
