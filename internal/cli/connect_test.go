package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ortet/ortet/azsim"
	"github.com/ortet/ortet/internal/azure/arm"
	"github.com/ortet/ortet/internal/azure/credential"
)

// Candidates are the scale sets of the group that the credentials name, and of the groups
// of pools that are given by their ARM ids; each group is asked once.
func TestCandidatesForNodesWithoutAzuresID(t *testing.T) {
	s := &azsim.Server{Seed: 1}
	defer s.Close()
	var asked []string
	cloud, err := arm.New(arm.Options{Cloud: azsim.Cloud(azsim.InProcess), Credential: s.Credential(""), Version: "test",
		Transport: sends(func(r *http.Request) (*http.Response, error) {
			asked = append(asked, strings.Split(r.URL.Path, "/")[4])
			return s.Transport().Do(r)
		})})
	if err != nil {
		t.Fatal(err)
	}
	const sub = "/subscriptions/" + azsim.DefaultSubscription + "/resourceGroups/"
	pool := func(group string) string {
		return sub + group + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool"
	}
	for name, c := range map[string]struct {
		group string
		pools []string
		want  string
	}{
		"azure.json":           {azsim.DefaultResourceGroup, nil, azsim.DefaultResourceGroup},
		"nothing":              {"", []string{"pool"}, ""},
		"an ARM id":            {"", []string{pool(azsim.DefaultResourceGroup)}, azsim.DefaultResourceGroup},
		"the same group twice": {azsim.DefaultResourceGroup, []string{pool(strings.ToUpper(azsim.DefaultResourceGroup)), "other"}, azsim.DefaultResourceGroup},
	} {
		asked = nil
		who := credential.Credentials{Subscription: azsim.DefaultSubscription, ResourceGroup: c.group}
		if _, err := scaleSetsOf(cloud, who, c.pools)(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.Join(asked, " "); got != c.want {
			t.Errorf("%s: asked %q, want %q", name, got, c.want)
		}
	}
}

type sends func(*http.Request) (*http.Response, error)

func (f sends) Do(r *http.Request) (*http.Response, error) { return f(r) }
