// Package prototype has the values of this chart for ortet operator export.
package prototype

import _ "embed"

// Values are the chart's, and Schema is their schema.
var (
	//go:embed values.yaml
	Values []byte
	//go:embed values.schema.json
	Schema []byte
)
