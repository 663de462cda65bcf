#!/usr/bin/env python3
"""Writes tests/data/neuroglancer: a small, fully sharded precomputed data set.

usage: make_dataset.py OUT_DIR

cloud-volume writes every shard, so the data is independent of ShardDb and of Neuroglancer. The random numbers have a
fixed seed: every run writes the same bytes. OUT_DIR/ng_expect.json lists the scenes (viewer states), and for each one
the pixels, texts and chunk counts that run_ng_check.mjs compares.

  image/            uint8 volume 128^3, 32^3 chunks, identity hash, gzip index, raw data
  seg/              uint64 volume 128^3 (ids > 2^53), murmur hash, raw index, gzip data
  seg/skeletons/    1000 skeletons, murmur hash, gzip index, gzip data
  seg/mesh/         neuroglancer_multilod_draco, murmur hash, gzip index, raw data
  seg/properties/   inline segment properties (this kind has no sharded form)
  ann/              point annotations: by_id, relationship and 2 spatial levels, all sharded
"""
import json, os, struct, sys
import numpy as np
import DracoPy
from cloudvolume.datasource.precomputed.sharding import ShardingSpecification
from cloudvolume.datasource.precomputed.common import compressed_morton_code

OUT = sys.argv[1]
RNG = np.random.default_rng(20261121)
COLORS = [(255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 0),
          (255, 0, 255), (0, 255, 255), (255, 128, 0), (128, 0, 255)]
hexcol = lambda c: "#%02x%02x%02x" % c


def spec(preshift, minishard, shard, hash="murmurhash3_x86_128", index="gzip", data="gzip"):
    return ShardingSpecification("neuroglancer_uint64_sharded_v1", preshift_bits=preshift, hash=hash,
        minishard_bits=minishard, shard_bits=shard, minishard_index_encoding=index, data_encoding=data)


def spec_json(s):
    d = s.to_dict()
    return {k: (int(v) if not isinstance(v, str) else v) for k, v in d.items()}


def put(path, blob):
    path = os.path.join(OUT, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(blob)


def put_json(path, obj):
    put(path, json.dumps(obj, indent=1).encode())


def put_shards(prefix, s, data, data_offset=None):
    files = s.synthesize_shards(data, data_offset=data_offset)
    for name, blob in files.items():
        put(prefix + "/" + name, bytes(blob))
    return len(files)


N, C, G = 128, 32, 4
RES = 8  # nm per voxel


def volume_info(kind, dtype, s, extra=None):
    return {"@type": "neuroglancer_multiscale_volume", "type": kind, "data_type": dtype, "num_channels": 1,
        "scales": [{"key": "s0", "size": [N] * 3, "resolution": [RES] * 3, "voxel_offset": [0, 0, 0],
                    "chunk_sizes": [[C] * 3], "encoding": "raw", "sharding": spec_json(s)}], **(extra or {})}


# ---- image: cubes of 16^3, 8 per chunk; value 85 * (1 + (x + 2y + z) % 3) at cube x, y, z, which is not symmetric in x and y ----
s = spec(2, 1, 3, hash="identity", data="raw")
chunks = {}
for x in range(G):
    for y in range(G):
        for z in range(G):
            i = [np.arange(g * C, g * C + C) // 16 for g in (x, y, z)]
            v = 85 * (1 + (i[0][:, None, None] + 2 * i[1][None, :, None] + i[2][None, None, :]) % 3)
            chunks[int(compressed_morton_code((x, y, z), (G, G, G)))] = v.astype(np.uint8).tobytes("F")
put_json("image/info", volume_info("image", "uint8", s))
n_img = put_shards("image/s0", s, chunks)

# ---- segmentation: 8 octants; ids above 2^53, which a double cannot represent ----
IDS = [int(v) for v in RNG.integers(2**53, 2**64 - 1, size=8, dtype=np.uint64)]
vol = np.zeros((N, N, N), np.uint64)
H = N // 2
octant = lambda i: (slice((i & 1) * H, (i & 1) * H + H), slice((i >> 1 & 1) * H, (i >> 1 & 1) * H + H),
                    slice((i >> 2) * H, (i >> 2) * H + H))
for i, sid in enumerate(IDS):
    vol[octant(i)] = sid
s = spec(0, 2, 2, index="raw", data="gzip")
chunks = {}
for x in range(G):
    for y in range(G):
        for z in range(G):
            sub = vol[x * C:(x + 1) * C, y * C:(y + 1) * C, z * C:(z + 1) * C]
            chunks[int(compressed_morton_code((x, y, z), (G, G, G)))] = sub.tobytes("F")
put_json("seg/info", volume_info("segmentation", "uint64", s,
         {"mesh": "mesh", "skeletons": "skeletons", "segment_properties": "properties"}))
n_seg = put_shards("seg/s0", s, chunks)

# ---- skeletons: a 3-d cross for each of the 8 segments, and 992 objects that no scene selects ----
def skeleton(i):
    lo = np.array([(i & 1) * H, (i >> 1 & 1) * H, (i >> 2) * H], np.float32) + 6
    hi = lo + H - 12
    mid = (lo + hi) / 2
    v, e = [], []
    for d in range(3):
        a, b = mid.copy(), mid.copy()
        a[d], b[d] = lo[d], hi[d]
        e.append((len(v), len(v) + 1)); v += [a, b]
    v = (np.array(v, np.float32) * RES)
    e = np.array(e, np.uint32)
    return struct.pack("<II", len(v), len(e)) + v.tobytes() + e.tobytes()

s = spec(1, 3, 3)
data = {sid: skeleton(i) for i, sid in enumerate(IDS)}
for d in RNG.integers(1, 2**64 - 1, size=992, dtype=np.uint64):
    data.setdefault(int(d), skeleton(int(d) % 8))
put_json("seg/skeletons/info", {"@type": "neuroglancer_skeletons", "transform": [1,0,0,0, 0,1,0,0, 0,0,1,0],
         "vertex_attributes": [], "sharding": spec_json(s), "segment_properties": "../properties"})
n_skel = put_shards("seg/skeletons", s, data)
n_skeletons = len(data)

# ---- meshes: one box per segment, multilod_draco, one level of detail, one fragment ----
Q = 16
def mesh(i):
    m = 2**Q - 1
    corners = np.array([[x, y, z] for x in (0, m) for y in (0, m) for z in (0, m)], np.uint32)
    faces = np.array([[0,1,3],[0,3,2],[4,6,7],[4,7,5],[0,4,5],[0,5,1],[2,3,7],[2,7,6],[0,2,6],[0,6,4],[1,5,7],[1,7,3]], np.uint32)
    frag = DracoPy.encode(corners, faces, quantization_bits=Q, compression_level=1)
    lo = (np.array([(i & 1) * H, (i >> 1 & 1) * H, (i >> 2) * H], np.float32) + 12) * RES
    shape = np.full(3, (H - 24) * RES, np.float32)
    manifest = (shape.tobytes() + lo.tobytes() + struct.pack("<I", 1) + struct.pack("<f", 1.0)
                + struct.pack("<3f", 0, 0, 0) + struct.pack("<I", 1) + struct.pack("<3I", 0, 0, 0) + struct.pack("<I", len(frag)))
    return frag, manifest

s = spec(0, 2, 1, data="raw")
data, off = {}, {}
for i, sid in enumerate(IDS):
    frag, man = mesh(i)
    data[sid] = frag + man
    off[sid] = len(man)          # cloud-volume's "data_offset": the size of the manifest, which follows the fragment
put_json("seg/mesh/info", {"@type": "neuroglancer_multilod_draco", "vertex_quantization_bits": Q, "lod_scale_multiplier": 1.0,
         "transform": [1,0,0,0, 0,1,0,0, 0,0,1,0], "sharding": spec_json(s)})
n_mesh = put_shards("seg/mesh", s, data, off)

# ---- segment properties: always inline ----
put_json("seg/properties/info", {"@type": "neuroglancer_segment_properties", "inline": {"ids": [str(v) for v in IDS],
         "properties": [{"id": "label", "type": "label", "values": ["octant-%d" % i for i in range(8)]}]}})

# ---- annotations: points with an rgb property; all four indexes are sharded ----
# 64 points on the plane z = 80.5, one at the centre of each 16x16 square, related to the segment of their octant.
pts = [(8 + 16 * x, 8 + 16 * y, 80.5) for y in range(8) for x in range(8)]
aids = [int(v) for v in RNG.integers(2**53, 2**64 - 1, size=len(pts), dtype=np.uint64)]
rel = [(1 if p[0] >= H else 0) + (2 if p[1] >= H else 0) + (4 if p[2] >= H else 0) for p in pts]
geom = lambda k: struct.pack("<3f", *pts[k]) + bytes(COLORS[rel[k]]) + b"\0"
many = lambda ks: struct.pack("<Q", len(ks)) + b"".join(geom(k) for k in ks) + b"".join(struct.pack("<Q", aids[k]) for k in ks)
s_id, s_rel, s_sp = spec(0, 2, 2), spec(0, 1, 2, index="raw"), spec(0, 1, 1, hash="identity", data="raw")
by_id = {aids[k]: geom(k) + struct.pack("<IQ", 1, IDS[rel[k]]) for k in range(len(pts))}
by_rel = {IDS[o]: many([k for k in range(len(pts)) if rel[k] == o]) for o in sorted(set(rel))}
lvl0 = list(range(0, 64, 4)); rest = [k for k in range(64) if k % 4]
cells = {}
for k in rest:
    cells.setdefault(tuple(int(c // H) for c in pts[k]), []).append(k)
by_cell = {int(compressed_morton_code(c, (2, 2, 2))): many(ks) for c, ks in cells.items()}
n_ann = put_shards("ann/by_id", s_id, by_id) + put_shards("ann/rel", s_rel, by_rel) \
      + put_shards("ann/sp0", s_sp, {0: many(lvl0)}) + put_shards("ann/sp1", s_sp, by_cell)
put_json("ann/info", {"@type": "neuroglancer_annotations_v1", "dimensions": {d: [RES * 1e-9, "m"] for d in "xyz"},
    "lower_bound": [0, 0, 0], "upper_bound": [N] * 3, "annotation_type": "point",
    "properties": [{"id": "colour", "type": "rgb", "default": "#ffffff"}],
    "by_id": {"key": "by_id", "sharding": spec_json(s_id)},
    "relationships": [{"id": "segment", "key": "rel", "sharding": spec_json(s_rel)}],
    "spatial": [{"key": "sp0", "grid_shape": [1, 1, 1], "chunk_size": [N] * 3, "limit": 64, "sharding": spec_json(s_sp)},
                {"key": "sp1", "grid_shape": [2, 2, 2], "chunk_size": [H] * 3, "limit": 64, "sharding": spec_json(s_sp)}]})

# ---- expectations ------------------------------------------------------------------------
# "$URL" in a source is replaced by the base URL.
# pixels: [dx, dy, [r,g,b]], in CSS pixels relative to the centre of the data panel.
# huePixels: like pixels, but only the hue is compared; for lit surfaces.
# colors, hues: [[r,g,b], minimum number of pixels].
# chunks: {source type: minimum number of chunks in GPU memory}.
ZOOM = 0.25                       # voxels per pixel
dims = {d: [RES * 1e-9, "m"] for d in "xyz"}
base = {"dimensions": dims, "position": [64, 64, 80.5], "crossSectionScale": ZOOM, "projectionScale": 220,
        "projectionOrientation": [0.16, -0.28, 0.05, 0.95], "showAxisLines": False, "showScaleBar": False,
        "showDefaultAnnotations": False, "crossSectionBackgroundColor": "#000000", "projectionBackgroundColor": "#000000"}
IMG_SHADER = ("#uicontrol invlerp n\nvoid main() { float v = float(toRaw(getDataValue()));\n"
  "if (v == 85.0) emitRGB(vec3(1.0,0.0,0.0)); else if (v == 170.0) emitRGB(vec3(0.0,1.0,0.0));\n"
  "else if (v == 255.0) emitRGB(vec3(0.0,0.0,1.0)); else emitRGB(vec3(1.0,1.0,1.0)); }").replace("#uicontrol invlerp n\n", "")
seg_common = {"segments": [str(v) for v in IDS], "segmentColors": {str(v): hexcol(COLORS[i]) for i, v in enumerate(IDS)}}
seg_src = lambda *subs: {"url": "precomputed://$URL/seg", "enableDefaultSubsources": False, "subsources": {k: True for k in subs}}
ann_shader = "void main() { setColor(prop_colour()); setPointMarkerSize(14.0); setPointMarkerBorderWidth(0.0); }"
img_px = [[(16 * x + 8 - 64) / ZOOM, (16 * y + 8 - 64) / ZOOM, [(255, 0, 0), (0, 255, 0), (0, 0, 255)][(x + 2 * y + 5) % 3]]
          for x in range(8) for y in range(8)]       # z = 80.5: the sixth cube
seg_px = [[(16 * x + 8 - 64) / ZOOM, (16 * y + 8 - 64) / ZOOM, COLORS[4 + (x >= 4) + 2 * (y >= 4)]] for x in range(8) for y in range(8)]
ann_px = [[(p[0] - 64) / ZOOM, (p[1] - 64) / ZOOM, COLORS[o]] for p, o in zip(pts, rel)]
REL_OCT = 6
# 3-d scenes use an orthographic view, so screen positions can be computed from the geometry.
P3 = 220                          # voxels per panel height; positions are in voxels relative to the centre
Q4 = np.array([0.16, -0.28, 0.05, 0.95]); Q4 /= np.linalg.norm(Q4)
def rot(q):
    x, y, z, w = q
    return np.array([[1-2*(y*y+z*z), 2*(x*y-z*w), 2*(x*z+y*w)], [2*(x*y+z*w), 1-2*(x*x+z*z), 2*(y*z-x*w)], [2*(x*z-y*w), 2*(y*z+x*w), 1-2*(x*x+y*y)]])
R3 = rot(Q4)
CENTER = np.array([64, 64, 80.5])
cam = lambda p: (R3.T @ (np.asarray(p, float) - CENTER))              # screen x, y (down), depth (away)
def seg_lines(i):
    lo = np.array([(i & 1) * H, (i >> 1 & 1) * H, (i >> 2) * H], float) + 6
    hi = lo + H - 12; mid = (lo + hi) / 2
    for d in range(3):
        a, b = mid.copy(), mid.copy(); a[d], b[d] = lo[d], hi[d]
        yield a, b
def line_dist(p, a, b):
    ab = b - a; t = np.clip(np.dot(p - a, ab) / np.dot(ab, ab), 0, 1)
    return np.linalg.norm(p - a - t * ab)
skel_px = []
for i in range(8):
    for a, b in seg_lines(i):
        for t in (0.08, 0.2, 0.35, 0.65, 0.8, 0.92):
            p = cam(a + t * (b - a))[:2]
            if all(line_dist(p, cam(c)[:2], cam(d)[:2]) > 5 for j in range(8) if j != i for c, d in seg_lines(j)):
                skel_px.append([round(float(p[0]), 2), round(float(p[1]), 2), COLORS[i]])
def nearest_box(x, y):
    o = CENTER + R3 @ (np.array([x, y, -1000.0])); dv = R3[:, 2]; best = (np.inf, None)
    for i in range(8):
        lo = np.array([(i & 1) * H, (i >> 1 & 1) * H, (i >> 2) * H], float) + 12; hi = lo + H - 24
        t1, t2 = (lo - o) / dv, (hi - o) / dv
        tn, tf = np.minimum(t1, t2).max(), np.maximum(t1, t2).min()
        if tn < tf and tn < best[0]: best = (tn, i)
    return best[1]
mesh_px = []
for y in range(-100, 101, 8):
    for x in range(-120, 121, 8):
        k = nearest_box(x, y)
        if all(nearest_box(x + dx, y + dy) == k for dx in (-2, 0, 2) for dy in (-2, 0, 2)):
            mesh_px.append([x, y, COLORS[k] if k is not None else (0, 0, 0)])
ortho = {"type": "3d", "orthographicProjection": True}
scenes = [
  {"name": "image", "files": "image/s0/", "state": {**base, "layout": "xy", "layers": [
      {"type": "image", "name": "image", "source": "precomputed://$URL/image", "shader": IMG_SHADER, "opacity": 1, "blend": "default"}]},
   "pixels": img_px, "chunks": {"precomputed/VolumeChunkSource": 16}},
  {"name": "seg", "files": "seg/s0/", "state": {**base, "layout": "xy", "layers": [
      {"type": "segmentation", "name": "seg", "source": seg_src("default"), "selectedAlpha": 1, **seg_common}]},
   "pixels": seg_px, "chunks": {"precomputed/VolumeChunkSource": 16}},
  {"name": "skeletons", "files": "seg/skeletons/", "state": {**base, "layout": ortho, "layers": [
      {"type": "segmentation", "name": "skel", "source": seg_src("skeletons"), **seg_common,
       "skeletonRendering": {"mode3d": "lines", "lineWidth3d": 9}}]},
   "scale3d": P3, "pixels": skel_px, "colors": [[c, 300] for c in COLORS], "chunks": {"precomputed/SkeletonSource": 8}},
  {"name": "mesh", "files": "seg/mesh/", "state": {**base, "layout": ortho, "layers": [
      {"type": "segmentation", "name": "mesh", "source": seg_src("mesh"), **seg_common}]},
   "scale3d": P3, "huePixels": mesh_px, "hues": [[c, 1000] for c in COLORS], "chunks": {"precomputed/MultiscaleMeshSource": 8, "mesh/MultiscaleFragmentSource": 8}},
  {"name": "ann-spatial", "files": "ann/sp", "state": {**base, "layout": "xy", "layers": [
      {"type": "annotation", "name": "ann", "source": "precomputed://$URL/ann", "shader": ann_shader}]},
   "pixels": ann_px, "chunks": {"precomputed/AnnotationSpatialIndexSource": 5}},
  {"name": "ann-related", "files": "ann/rel/", "state": {**base, "layout": "xy", "layers": [
      {"type": "segmentation", "name": "seg", "source": seg_src("default"), "selectedAlpha": 0, "notSelectedAlpha": 0,
       **seg_common, "segments": [str(IDS[REL_OCT])]},
      {"type": "annotation", "name": "ann", "source": "precomputed://$URL/ann", "shader": ann_shader,
       "linkedSegmentationLayer": {"segment": "seg"}, "filterBySegmentation": ["segment"]}]},
   "pixels": [[(p[0] - 64) / ZOOM, (p[1] - 64) / ZOOM, COLORS[o] if o == REL_OCT else (0, 0, 0)] for p, o in zip(pts, rel)], "chunks": {"annotation.SubsetGeometryChunkSource": 1}},
  {"name": "ann-by-id", "files": "ann/by_id/", "state": {**base, "layout": "xy", "layers": [
      {"type": "annotation", "name": "ann", "source": "precomputed://$URL/ann", "shader": ann_shader}],
      "selection": {"visible": True, "size": 300, "layers": {"ann": {"annotationId": str(aids[27]), "annotationSource": 0, "annotationSubsource": "default"}}}},
   "text": ["%d" % IDS[rel[27]]], "chunks": {"annotation.MetadataChunkSource": 1}},
  {"name": "properties", "files": None, "state": {**base, "layout": "xy", "selectedLayer": {"layer": "seg", "visible": True, "size": 400}, "layers": [
      {"type": "segmentation", "name": "seg", "tab": "segments", "source": seg_src("default", "properties"), "selectedAlpha": 1, **seg_common}]},
   "text": ["octant-%d" % i for i in range(8)] + [str(v) for v in IDS], "chunks": {}},
]
put("ng_expect.json", b'{"scenes": [\n' + b",\n".join(json.dumps(s, separators=(",", ":")).encode() for s in scenes) + b"\n]}\n")
tot = sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(OUT) for f in fs)
print(f"wrote {OUT}: shards image={n_img} seg={n_seg} skeletons={n_skel} ({n_skeletons} objects) mesh={n_mesh} ann={n_ann}; {tot} bytes")
