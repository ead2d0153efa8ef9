package recipe

import (
	"errors"

	"github.com/ortet/ortet/internal/elastic"
)

// Render makes the documents of a cluster.
func Render(*elastic.Cluster, Facts) (*Documents, error) {
	return nil, errors.New("render the cluster: not built yet")
}
