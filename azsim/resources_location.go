package azsim

import "strings"

// pairedRegions are the regions in which Azure keeps second copies, by region. Source: the
// recorded list of locations (Azure CLI, test_vm_create_existing_ids_options, 2023).
func pairedRegions() map[string]string {
	const pairs = `
		australiaeast:australiasoutheast australiasoutheast:australiaeast brazilsouth:southcentralus brazilsoutheast:brazilsouth
		canadacentral:canadaeast canadaeast:canadacentral centralindia:southindia centralus:eastus2 centraluseuap:eastus2euap
		eastasia:southeastasia eastus:westus eastus2:centralus eastus2euap:centraluseuap francecentral:francesouth
		francesouth:francecentral germanynorth:germanywestcentral germanywestcentral:germanynorth japaneast:japanwest
		japanwest:japaneast jioindiacentral:jioindiawest jioindiawest:jioindiacentral koreacentral:koreasouth koreasouth:koreacentral
		northcentralus:southcentralus northeurope:westeurope norwayeast:norwaywest norwaywest:norwayeast
		southafricanorth:southafricawest southafricawest:southafricanorth southcentralus:northcentralus southeastasia:eastasia
		southindia:centralindia swedencentral:swedensouth swedensouth:swedencentral switzerlandnorth:switzerlandwest
		switzerlandwest:switzerlandnorth uaecentral:uaenorth uaenorth:uaecentral uksouth:ukwest ukwest:uksouth westcentralus:westus2
		westeurope:northeurope westindia:southindia westus:eastus westus2:westcentralus westus3:eastus`
	out := map[string]string{}
	for pair := range strings.FieldsSeq(pairs) {
		region, other, _ := strings.Cut(pair, ":")
		out[region] = other
	}
	return out
}
