// Reads a folder of `murho export --to onnx`: node read_onnx.mjs FOLDER RECORDS (JSON). In a browser, `fetch` takes the
// place of `readFileSync`. Needs onnxruntime-web.
import { readFileSync } from "node:fs";
import * as ort from "onnxruntime-web";

const [folder, rows] = [process.argv[2], JSON.parse(process.argv[3])]; // records
const encoding = JSON.parse(readFileSync(`${folder}/encoding.json`, "utf8"));

const scaled = (x, to) => (x == null ? 0 : (x - to.mean) / to.std);
const clipped = (x, least, most) => Math.min(Math.max(x, least ?? -Infinity), most ?? Infinity);

function encode(row, to) {
  if (to.numbers) {
    const parts = Object.entries(to.numbers).map(([name, each]) => each.weight * scaled(row[name], each));
    return clipped(parts.reduce((sum, part) => sum + part, 0), to.least, to.most);
  }
  if (to.zero) return 0;
  const x = row[to.feature];
  if (to.missing || x == null) return Number(Boolean(to.missing) && x == null);
  if ("slope" in to) return (clipped(scaled(x, to), to.floor, to.ceiling) - to.offset) * to.slope;
  if (to.part) {
    const day = new Date(Math.round(x * 86_400) * 1000);
    const [month, weekday, hour] = [day.getUTCMonth() / 12, ((day.getUTCDay() + 6) % 7) / 7, day.getUTCHours() / 24];
    return (to.wave === "sine" ? Math.sin : Math.cos)(2 * Math.PI * { month, weekday, hour }[to.part]);
  }
  return Number("is" in to ? x === to.is : !to.none_of.includes(x));
}

const cells = Float32Array.from(rows.flatMap((row) => encoding.columns.map((to) => encode(row, to))));
const session = await ort.InferenceSession.create(`${folder}/model.onnx`);
const answer = await session.run({ rows: new ort.Tensor("float32", cells, [rows.length, encoding.columns.length]) });
console.log(JSON.stringify(Object.fromEntries(Object.entries(answer).map(([name, { data }]) => [name, [...data]]))));
