package kernels_test

import (
	"testing"

	"attnlab/attn"
	"attnlab/kernels"
)

func BenchmarkX(b *testing.B) {
	for _, k := range kernels.All() {
		algo, isa := k.Name()
		p := attn.Problem{Batch: 1, SeqQ: 2048, SeqKV: 2048, HeadsQ: 1, HeadsKV: 1, Dim: 64, DimV: 64}
		if algo == "linear" {
			p.Op = attn.OpLinear
		}
		b.Run(algo+"/"+isa, func(b *testing.B) {
			pl, err := k.Plan(p, nil)
			if err != nil {
				b.Fatal(err)
			}
			a := &attn.Args{Q: attn.New(attn.BHSD, 1, 2048, 1, 64), K: attn.New(attn.BHSD, 1, 2048, 1, 64), V: attn.New(attn.BHSD, 1, 2048, 1, 64), Out: attn.New(attn.BHSD, 1, 2048, 1, 64)}
			for i := range a.Q.Data {
				a.Q.Data[i] = float32(i*7919%101)/50 - 1
				a.K.Data[i] = float32(i*104729%103)/50 - 1
				a.V.Data[i] = float32(i*1299709%107)/50 - 1
			}
			for b.Loop() {
				pl.Forward(a)
			}
			b.ReportMetric(float64(p.Count(nil).Flop)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
