package azsim

import "slices"

// regionNames are the display names of Azure's regions ("az account list-locations"); the
// name is the same in lower case without spaces. Image versions answer with them.
var regionNames = []string{
	"Australia Central", "Australia East", "Australia Southeast", "Austria East", "Brazil South", "Canada Central", "Canada East",
	"Central India", "Central US", "Central US EUAP", "Chile Central", "East Asia", "East US", "East US 2", "East US 2 EUAP", "France Central",
	"France South", "Germany North", "Germany West Central", "Indonesia Central", "Israel Central", "Italy North", "Japan East", "Japan West",
	"Jio India Central", "Jio India West", "Korea Central", "Korea South", "Malaysia West", "Mexico Central", "New Zealand North",
	"North Central US", "North Europe", "Norway East", "Norway West", "Poland Central", "Qatar Central", "South Africa North", "South Africa West",
	"South Central US", "South India", "Southeast Asia", "Spain Central", "Sweden Central", "Switzerland North", "Switzerland West", "UAE Central",
	"UAE North", "UK South", "UK West", "West Central US", "West Europe", "West India", "West US", "West US 2", "West US 3",
}

// namedRegions gives locations without a display name that of Azure's region.
func namedRegions(list []Location) []Location {
	list = slices.Clone(list)
	for i := range list {
		for _, name := range regionNames {
			if list[i].DisplayName == "" && normLocation(name) == normLocation(list[i].Name) {
				list[i].DisplayName = name
			}
		}
	}
	return list
}
