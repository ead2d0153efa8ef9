// Package schema embeds the published JSON schemas that programs check files by.
package schema

import _ "embed"

// Cluster is the schema of cluster.yaml (draft 2020-12). patternErrorMessage, which
// editors show too, says what a pattern wants.
//
//go:embed cluster.v1alpha1.json
var Cluster []byte

// NodeConfig is the schema of nodeconfig.yaml, in the same form.
//
//go:embed nodeconfig.v1alpha1.json
var NodeConfig []byte
