package cluster_test

import (
	"testing"
)

func TestVirtualNodesComeAndGo(t *testing.T) {
	virtually(t, func(t *testing.T, w *testCluster) {
		a, b, c := w.join("a", nil), w.join("b", nil), w.join("c", nil)
		settled(t, a, b, c)
		b.proxy.Cut()
		settled(t, a, c)
		b.proxy.Mend()
		settled(t, a, b, c)
		b.proxy.Stall()
		settled(t, a, c)
		b.proxy.Mend()
		settled(t, a, b, c)
		b.leave()
		settled(t, a, c)
	})
}
