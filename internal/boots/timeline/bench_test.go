package timeline

import "testing"

func BenchmarkAddReport(b *testing.B) {
	r := Sample(1, 400)
	var s Stats
	b.ReportAllocs()
	for b.Loop() {
		s.AddReport(r, Cloud{})
	}
}

func BenchmarkBuild(b *testing.B) {
	r := Sample(1, 400)
	var s Stats
	b.ReportAllocs()
	for b.Loop() {
		s.Add(Build(r, Cloud{}))
	}
}
