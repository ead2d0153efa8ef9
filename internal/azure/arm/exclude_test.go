package arm_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/ortet/ortet/internal/fleet"
)

// TestExcludeKeepsRegionsAndReplicas: an update sends back all that the version is
// published with, but for what Azure sets itself.
func TestExcludeKeepsRegionsAndReplicas(t *testing.T) {
	const regions = `[{"excludeFromLatest":true,"name":"North Europe","regionalReplicaCount":5,"storageAccountType":"Standard_LRS"},{"name":"West Europe","regionalReplicaCount":2,"storageAccountType":"Standard_ZRS"}]`
	published := func(more string) string {
		return `{"id":"` + string(version) + `","name":"2026.11.21","location":"westeurope","tags":{"a":"b"},"properties":{"provisioningState":"Succeeded","publishingProfile":{` + more +
			`"endOfLifeDate":"2027-01-01T00:00:00Z","excludeFromLatest":false,"replicaCount":3,"replicationMode":"Full","storageAccountType":"Standard_ZRS","targetRegions":` + regions + `}}}`
	}
	c, s := newCloud(t, answer{status: http.StatusOK, body: published(`"publishedDate":"2026-11-21T00:00:00Z",`)}, answer{status: http.StatusOK, body: published("")})
	if _, err := c.Begin(t.Context(), fleet.ExcludeVersion{ID: version}); err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal([]byte(`{"properties":{"publishingProfile":{"endOfLifeDate":"2027-01-01T00:00:00Z","excludeFromLatest":true,"replicaCount":3,"replicationMode":"Full","storageAccountType":"Standard_ZRS","targetRegions":`+regions+`}}}`), &want); err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(s.sent[1].body)
	wanted, _ := json.Marshal(want)
	if s.sent[1].method != http.MethodPatch || string(got) != string(wanted) {
		t.Errorf("%s sends %s, want %s", s.sent[1].method, got, wanted)
	}
}
