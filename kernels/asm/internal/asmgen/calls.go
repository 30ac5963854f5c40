package asmgen

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A block describes a struct of package asm that loops read: the structs that it embeds, and its
// own fields. A field of a field is written K.Data and has a path.
type block struct {
	embeds []string
	fields []string
	paths  map[string]string
}

// blocks are the calls of package asm and the structs that they are made of.
var blocks = map[string]block{
	"Panel": {fields: []string{"Lanes", "Width", "N", "P"}},
	"Product": {
		fields: []string{"D", "Factor", "plain"},
		paths: map[string]string{
			"Qt": "Queries+QueryTile_lanes", "K.Data": "Keys+KeyBlock_packed+" + rowsData, "K.Stride": "Keys+KeyBlock_packed+" + rowsStride,
		},
	},
	"Sums":     {fields: []string{"M", "L", "S"}},
	"Band":     {fields: []string{"Lo", "Hi", "Key", "Plain"}},
	"Prefetch": {fields: []string{"At", "By"}},
	"Stream":   {fields: []string{"At", "By", "Beside"}},
	"Softmax":  {embeds: []string{"Panel", "Sums"}, fields: []string{"Keep", "Done"}},
	"Flash":    {embeds: []string{"Softmax", "Product", "Band", "Prefetch"}, fields: []string{"Until"}},
	"Mix": {
		embeds: []string{"Panel"}, fields: []string{"C", "O", "Fresh", "Since", "Until"},
		paths: map[string]string{
			"V.Data": "Values+ValueBlock_packed+" + rowsData, "V.Stride": "Values+ValueBlock_packed+" + rowsStride,
			"Next.At": "Next+Prefetch_At", "Next.By": "Next+Prefetch_By", "Then.At": "Then+Prefetch_At", "Then.By": "Then+Prefetch_By",
		},
	},
	"DScore": {
		embeds: []string{"Panel"}, fields: []string{"C", "Sub"},
		paths: map[string]string{
			"Dot": "Dot+QueryTile_lanes", "V.Data": "Values+KeyBlock_packed+" + rowsData, "V.Stride": "Values+KeyBlock_packed+" + rowsStride,
		},
	},
	"Outer": {
		embeds: []string{"Panel", "Stream"}, fields: []string{"C", "X", "XStride", "Fresh", "Keep", "Scale"},
		paths: map[string]string{
			"Y.Data": "Y+LineBlock_packed+" + rowsData, "Y.Stride": "Y+LineBlock_packed+" + rowsStride, "Next.By": "Stream+Stream_By",
		},
	},
	"Edit":     {embeds: []string{"Panel"}, fields: []string{"Bias", "SlopeHi", "SlopeLo", "Pos", "Bits"}},
	"RowPanel": {fields: []string{"R", "N", "P", "Stride"}},
	"Runs": {fields: []string{
		"Run", "At", "Scales", "Ahead", "Far", "FarScale", "FarPages", "Heads", "run", "left", "keys", "head", "rows", "share", "shares",
	}},
	"Walk": {
		embeds: []string{"RowPanel", "Runs"}, fields: []string{"D", "HeadStep"},
		paths: map[string]string{
			"Rows.Data": "Rows+Rows_Data", "Rows.Stride": "Rows+Rows_Stride", "Cache.Stride": "Cache+Cells_Rows+Rows_Stride",
			"Cache.Data": "Cache+Cells_Rows+Rows_Data", "Cache.Half": "Cache+Cells_Half", "Cache.Byte": "Cache+Cells_Byte",
		},
	},
	"Dot":   {embeds: []string{"Walk"}, fields: []string{"Factor"}},
	"Weigh": {embeds: []string{"RowPanel", "Sums", "Prefetch"}, fields: []string{"tops"}},
}

const (
	rowsData   = "packed_rows+Rows_Data"
	rowsStride = "packed_rows+Rows_Stride"
)

// path returns the offset of a field in a block as a sum of go_asm.h's names, or "" if the block
// has no such field.
func path(of, field string) string {
	b := blocks[of]
	if slices.Contains(b.fields, field) {
		return of + "_" + field
	}
	if p := b.paths[field]; p != "" {
		return of + "_" + p
	}
	for _, e := range b.embeds {
		if p := path(e, field); p != "" {
			return of + "_" + e + "+" + p
		}
	}
	return ""
}

// of returns a field of the function's call.
func (f *file) of(field string) mem {
	p := path(f.call, field)
	if p == "" {
		panic(fmt.Sprintf("asmgen: %s reads %s: %s has no such field", strings.TrimSpace(f.head), field, f.call))
	}
	return mem{base: panel, field: p}
}

// callOf finds the type of a function's call in its parameters.
var callOf = regexp.MustCompile(`^\(p \*(\w+)`)
