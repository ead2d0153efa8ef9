package azsim

import (
	"reflect"
	"testing"
)

func TestPlaceZones(t *testing.T) {
	for _, c := range []struct {
		name  string
		zones []string
		have  []member
		n     int
		want  []string
	}{
		{"no zones", nil, nil, 2, []string{"", ""}},
		{"round robin", []string{"1", "2", "3"}, nil, 4, []string{"1", "2", "3", "1"}},
		{"fills the gap", []string{"1", "2"}, []member{{id: 0, zone: "1"}, {id: 2, zone: "1"}}, 2, []string{"2", "2"}},
	} {
		if got := placeZones(c.zones, c.have, c.n); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestScaleInVictims(t *testing.T) {
	flat := []member{{id: 0}, {id: 1}, {id: 2}}
	zonal := []member{{id: 0, zone: "1"}, {id: 1, zone: "2"}, {id: 2, zone: "1"}, {id: 7, zone: "2"}, {id: 3, zone: "1"}}
	for _, c := range []struct {
		name  string
		have  []member
		n     int
		rules []string
		want  []int
	}{
		{"newest by default", flat, 2, nil, []int{2, 1}},
		{"oldest", flat, 1, []string{"OldestVM"}, []int{0}},
		{"the fuller zone first", zonal, 2, []string{"Default"}, []int{3, 2}},
		{"protected stays", []member{{id: 0}, {id: 1, protected: true}}, 1, nil, []int{0}},
		{"nothing left to take", []member{{id: 0, protected: true}}, 1, nil, nil},
	} {
		if got := scaleInVictims(c.have, c.n, c.rules); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
