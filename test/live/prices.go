package live

import (
	_ "embed" // prices.json
	"encoding/json"
	"fmt"
)

//go:embed prices.json
var pricesFile []byte

// storageGiB is at most what the run's disks, snapshots and image versions hold at a time, of
// images with disks of 30 GiB: of each check's two pools a few copies, kept to the end.
const storageGiB = 1200

// prices are list prices with their dates.
type prices struct {
	VM struct {
		Size       string  `json:"size"`
		VCPUs      int     `json:"vCPUs"`
		USDPerHour float64 `json:"usdPerHour"`
		AsOf       string  `json:"asOf"`
	} `json:"vm"`
	Storage struct {
		USDPerGiBAndMonth float64 `json:"usdPerGiBAndMonth"`
	} `json:"storage"`
}

func readPrices() (p prices, err error) {
	if err = json.Unmarshal(pricesFile, &p); err == nil && (p.VM.USDPerHour <= 0 || p.Storage.USDPerGiBAndMonth <= 0) {
		err = fmt.Errorf("no price of %q or of storage", p.VM.Size)
	}
	if err != nil {
		return p, fmt.Errorf("cannot read test/live/prices.json: %w", err)
	}
	return p, nil
}

// limit is what a run that takes all its time costs at most, in USD.
func (p prices) limit() float64 {
	hours := (limit + cleanUpLimit).Hours()
	return hours * (maxInstances*p.VM.USDPerHour + storageGiB*p.Storage.USDPerGiBAndMonth/(30*24))
}
