package loadbalance_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"wgsteer/loadbalance"
)

func Example() {
	candidates := []loadbalance.Candidate{
		{Name: "gw04", Weight: 30, Peers: 40},
		{Name: "gw05", Weight: 30, Peers: 40},
		{Name: "gw06", Weight: 20, Peers: 40},
		{Name: "gw07", Weight: 20, Peers: 40},
	}
	for _, s := range loadbalance.Explain(candidates) {
		fmt.Printf("%s: target %g, diff %+g\n", s.Name, s.Target, s.Diff)
	}
	chosen, _ := loadbalance.Choose(candidates)
	fmt.Println("next:", chosen.Name)
	// Output:
	// gw04: target 48, diff -8
	// gw05: target 48, diff -8
	// gw06: target 32, diff +8
	// gw07: target 32, diff +8
	// next: gw04
}

func TestChoose(t *testing.T) {
	type c = loadbalance.Candidate
	for name, tt := range map[string]struct {
		candidates []c
		want       string
	}{
		"lowest diff":                         {[]c{{"a", 1, 10}, {"b", 1, 8}, {"c", 1, 9}}, "b"},
		"the heavier of two empty ones":       {[]c{{"a", 1, 0}, {"b", 3, 0}}, "a"},
		"tie: fewer peers per weight":         {[]c{{"a", 1, 1}, {"b", 2, 2}, {"c", 1, 0}}, "c"},
		"tie: then the name":                  {[]c{{"b", 1, 3}, {"a", 1, 3}}, "a"},
		"equal diffs, fewer peers per weight": {[]c{{"a", 10, 12}, {"b", 30, 32}, {"c", 60, 56}, {"d", 20, 18}, {"e", 30, 32}, {"f", 50, 50}}, "c"},
		"weight 0 is passed over, even empty": {[]c{{"a", 0, 0}, {"b", 1, 1000}}, "b"},
		"all of weight 0: the emptiest":       {[]c{{"a", 0, 2}, {"b", 0, 1}}, "b"},
		"one candidate":                       {[]c{{"a", 7, 1}}, "a"},
		"one candidate of weight 0":           {[]c{{"a", 0, 1}}, "a"},
		"largest numbers":                     {[]c{{"a", math.MaxUint32, math.MaxUint32}, {"b", math.MaxUint32, math.MaxUint32 - 1}}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := loadbalance.Choose(tt.candidates)
			if !ok || got.Name != tt.want {
				t.Errorf("Choose = %+v, %v, want %s", got, ok, tt.want)
			}
		})
	}
}

func TestChooseOfNone(t *testing.T) {
	if got, ok := loadbalance.Choose(nil); ok {
		t.Errorf("Choose(nil) = %+v, want none", got)
	}
	if got := loadbalance.Index(nil); got != -1 {
		t.Errorf("Index(nil) = %d, want -1", got)
	}
}

func TestWithoutWeightsTargetsAreEqual(t *testing.T) {
	got := loadbalance.Explain([]loadbalance.Candidate{{"a", 0, 4}, {"b", 0, 2}})
	want := []loadbalance.Standing{
		{Candidate: loadbalance.Candidate{Name: "a", Peers: 4}, Target: 3, Diff: 1},
		{Candidate: loadbalance.Candidate{Name: "b", Peers: 2}, Target: 3, Diff: -1},
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("Explain (-want +got):\n%s", diff)
	}
}

// candidates draws between one and twelve candidates with different names.
func candidates(maxWeight, maxPeers uint32) *rapid.Generator[[]loadbalance.Candidate] {
	return rapid.Custom(func(t *rapid.T) []loadbalance.Candidate {
		cs := make([]loadbalance.Candidate, rapid.IntRange(1, 12).Draw(t, "n"))
		for i := range cs {
			cs[i] = loadbalance.Candidate{
				Name:   string(rune('a' + i)),
				Weight: rapid.Uint32Range(0, maxWeight).Draw(t, "weight"),
				Peers:  rapid.Uint32Range(0, maxPeers).Draw(t, "peers"),
			}
		}
		return cs
	})
}

func weighs(cs []loadbalance.Candidate) bool {
	return slices.ContainsFunc(cs, func(c loadbalance.Candidate) bool { return c.Weight > 0 })
}

func TestChoiceHasTheLowestDiff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := candidates(1000, 1e6).Draw(t, "candidates")
		got, _ := loadbalance.Choose(cs)
		if got.Weight == 0 && weighs(cs) {
			t.Fatalf("chose %+v of weight 0 although others have a weight", got)
		}
		for _, s := range loadbalance.Explain(cs) {
			// Diffs are rounded floats of numbers below 1e6: 1e-6 is far above their error.
			if s.Diff < got.Diff-1e-6 && (s.Weight > 0 || !weighs(cs)) {
				t.Fatalf("chose %+v although %+v is lower", got, s)
			}
		}
	})
}

func TestDiffsSumToZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := candidates(1000, 1e6).Draw(t, "candidates")
		var total float64
		for _, s := range loadbalance.Explain(cs) {
			total += s.Diff
		}
		if math.Abs(total) > 1e-4 {
			t.Fatalf("the diffs of %+v sum to %g", cs, total)
		}
	})
}

func TestScalingAllWeightsChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := candidates(1000, 1e6).Draw(t, "candidates")
		factor := rapid.Uint32Range(1, 1e6).Draw(t, "factor")
		want, _ := loadbalance.Choose(cs)
		scaled := slices.Clone(cs)
		for i := range scaled {
			scaled[i].Weight *= factor
		}
		if got, _ := loadbalance.Choose(scaled); got.Name != want.Name {
			t.Fatalf("chose %s, with all weights times %d %s", want.Name, factor, got.Name)
		}
	})
}

// Weights so large that the sums no longer fit into one word take another path
// through the code: it must choose the same.
func TestHugeWeightsChooseAsSmallOnesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small := candidates(4, 5).Draw(t, "candidates")
		huge := slices.Clone(small)
		for i := range huge {
			small[i].Peers *= 1 << 28
			huge[i].Peers *= 1 << 28
			huge[i].Weight *= 1 << 29
		}
		want, _ := loadbalance.Choose(small)
		if got, _ := loadbalance.Choose(huge); got.Name != want.Name {
			t.Fatalf("chose %s, with all weights times 2²⁹ %s", want.Name, got.Name)
		}
	})
}

func TestTheOrderOfInputNeverMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Small numbers, so that ties are common.
		cs := candidates(3, 4).Draw(t, "candidates")
		want, _ := loadbalance.Choose(cs)
		got, _ := loadbalance.Choose(rapid.Permutation(cs).Draw(t, "permuted"))
		if got.Name != want.Name {
			t.Fatalf("chose %s, in another order %s", want.Name, got.Name)
		}
	})
}

// send gives the next peer to the chosen candidate.
func send(cs []loadbalance.Candidate) { cs[loadbalance.Index(cs)].Peers++ }

func diffs(cs []loadbalance.Candidate) (lowest, highest float64) {
	standings := loadbalance.Explain(cs)
	byDiff := func(a, b loadbalance.Standing) int { return cmp.Compare(a.Diff, b.Diff) }
	return slices.MinFunc(standings, byDiff).Diff, slices.MaxFunc(standings, byDiff).Diff
}

const rounding = 1e-6

func TestFromAnEmptyStartAllStayCloseToTheirTargets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := candidates(100, 0).Draw(t, "candidates")
		below := 1 + math.Log(float64(len(cs)))
		for range 1000 {
			send(cs)
			lowest, highest := diffs(cs)
			if highest > 1+rounding || lowest < -below-rounding {
				t.Fatalf("diffs from %g to %g, want at most 1 above and %g below: %+v", lowest, highest, below, cs)
			}
		}
	})
}

func TestFromAnyStartTheExcessOnlyShrinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := candidates(100, 200).Filter(weighs).Draw(t, "candidates")
		_, excess := diffs(cs)
		// A candidate of weight 0 never gets below its peers: only the others settle.
		settled := slices.DeleteFunc(slices.Clone(cs), func(c loadbalance.Candidate) bool { return c.Weight > 0 })
		for range 500 {
			send(cs)
			_, highest := diffs(cs)
			if highest > max(excess, 1)+rounding {
				t.Fatalf("the highest diff grew from %g to %g: %+v", excess, highest, cs)
			}
			excess = highest
		}
		for _, c := range settled {
			if now := cs[slices.IndexFunc(cs, func(d loadbalance.Candidate) bool { return d.Name == c.Name })]; now != c {
				t.Fatalf("a candidate of weight 0 went from %+v to %+v", c, now)
			}
		}
	})
}

func TestFromAnyStartTheTargetsAreReached(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cs := candidates(10, 20).Draw(t, "candidates")
		for i := range cs {
			cs[i].Weight++ // one of weight 0 stays above its target for ever
		}
		below := 1 + math.Log(float64(len(cs)))
		// The lightest of twelve has at least 1/131 of the weights: when its 20 peers
		// are its share, all have 20 × 131.
		for range 20 * 131 {
			send(cs)
		}
		if lowest, highest := diffs(cs); highest > 1+rounding || lowest < -below-rounding {
			t.Fatalf("diffs from %g to %g, want at most 1 above and %g below: %+v", lowest, highest, below, cs)
		}
	})
}

func TestNoAllocationPerChoice(t *testing.T) {
	cs := many(100)
	if n := testing.AllocsPerRun(100, func() { loadbalance.Choose(cs) }); n != 0 {
		t.Errorf("%g allocations per choice, want none", n)
	}
}

func many(n int) []loadbalance.Candidate {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	cs := make([]loadbalance.Candidate, n)
	for i := range cs {
		cs[i] = loadbalance.Candidate{Name: fmt.Sprintf("gw%05d", i), Weight: 1 + r.Uint32N(100), Peers: r.Uint32N(2000)}
	}
	return cs
}

func BenchmarkChoose(b *testing.B) {
	for _, n := range []int{4, 100, 10_000} {
		b.Run(fmt.Sprintf("candidates=%d", n), func(b *testing.B) {
			cs := many(n)
			b.ReportAllocs()
			for b.Loop() {
				loadbalance.Choose(cs)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/candidate")
		})
	}
}
